"""When no strategy can run: which pin excludes what, or the smallest change that would make it fit."""

import collections
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import attrs

from dsgen.jobs.fabrics import ASSUMED_NETWORK, named
from dsgen.jobs.job import Job
from dsgen.jobs.releases import ATTENTION, by_release
from dsgen.planning.candidates import Search, search
from dsgen.planning.program_changes import ProgramChange, at_once, fewest, program_changes
from dsgen.shapes.errors import Code, DsgenError, mistake
from dsgen.shapes.limits import MOST_NODES
from dsgen.shapes.pins import Pin
from dsgen.shapes.units import gib
from dsgen.strategies.strategies import Rejection

__all__ = ["nothing_fits"]

# What ends a search for what would fit: tokens, for a shorter sequence is not worth offering (our choice); the rank of
# adapters, as peft's LoraConfig has it by default; and bytes of RAM, the most of a DGX B200 (datasheet: up to 4 TB).
SHORTEST = 256
LEAST_RANK = 8
MOST_HOST_BYTES = 4 * 2**40
_METHOD = "method"
_PACKS_EXPERTS = "4.57"  # of transformers: the last release in which experts are linear layers


class _Answer(NamedTuple):
    """What is and what to do, and of a contradiction what must be and where it was written."""

    what: str
    todo: str | Callable[[], str] | None
    must: str | None = None
    where: object = None
    code: Code = "does-not-fit"


def nothing_fits(job: Job, search: Search) -> DsgenError:
    """The error for a search that found nothing."""
    said = _answer(job, search)
    return mistake(said.what, must=said.must, where=said.where, todo=said.todo, code=said.code)


def _answer(job: Job, search: Search) -> _Answer:
    if total := job.undivided_batch:
        return _undivided(job, total)
    if search.nearest:
        return _too_large(job, search.nearest)
    tried = [item for item in search.rejections if item.pin is None]  # they agree with every pin, and cannot run
    counted = collections.Counter(item.why for item in tried)
    reasons = [why for why, _ in counted.most_common()]  # what stops most of them first
    if any("batch" in reason for reason in reasons):
        reasons = [reason for reason in reasons if "batch" in reason]
    if not job.pins or (reasons and not all(str(pin.override.origin) for pin in job.pins)):
        return _Answer(reasons[0], "\n  ".join(reasons[1:3]) or None)
    guilty = _in_the_way(job)
    said = list(dict.fromkeys(str(pin) for pin in guilty or job.pins))
    pins = " and ".join(said)
    relation = "exclude each other" if len(said) > 1 else "cannot be had"
    if not reasons:
        reasons = [f"{item.pin} leaves no strategy" for item in search.rejections if item.pin][:1]
    cause = ".\n  ".join(reasons[:3])
    ways = " or ".join(dict.fromkeys(f"drop {pin.override.path}" for pin in guilty))
    out = f" It works if you {ways}." if ways else " Drop all but one of them." if len(said) > 1 else ""
    return _Answer(f"{pins} {relation}", f"{cause}.{out}")


def _undivided(job: Job, total: int) -> _Answer:
    """With the nearest batches that divide, and a number of GPUs that it divides among."""
    below = total // job.world * job.world
    near = f"{below} or {below + job.world}" if below else f"{job.world}"
    full = job.hardware.gpus_per_node
    counts = (count for count in range(job.world, 0, -1) if total % count == 0 and (count <= full or count % full == 0))
    fewer = next(counts)
    nodes = f" --nodes {-(-fewer // full)}" if job.nodes > 1 else ""
    return _Answer(
        f"a global batch of {total} does not divide among {job.world} GPUs",
        f"Or take a number of GPUs that divides it: --gpus {fewer}{nodes}.",
        must=f"it must be a multiple of {job.world}, such as {near}",
        where=job.provenance.where("training.global_batch"),
        code="contradiction",
    )


def _fits(job: Job) -> bool:
    """Whether any strategy surely fits; a change that is refused for itself is no way out."""
    try:
        return bool(search(job, lambda *_: False, all_where_none_fits=False).fitting)
    except DsgenError:
        return False


def _fits_with(job: Job, change: ProgramChange) -> bool:
    return _fits(change.applied(job))


def _may_fit(job: Job) -> bool:
    """Whether nothing surely fits, and something may: a plan that a person gets with a warning."""
    try:
        answer = search(job, lambda *_: False)
    except DsgenError:
        return False
    return bool(answer.uncertain and not answer.fitting)


def _in_the_way(job: Job) -> list[Pin]:
    """The pins without which something fits, whatever the others say."""
    told = []
    for pin in job.pins:
        rest = attrs.evolve(job, pins=tuple(other for other in job.pins if other.override is not pin.override))
        if _fits(rest):
            told.append(pin)
    return told


def _too_large(job: Job, nearest: Sequence[Rejection]) -> _Answer:
    gpus = f"{job.world} GPU{'s' if job.world > 1 else ''} of {gib(job.hardware.usable_memory_bytes)} GiB"
    written = _written(job)
    pinned = f" with {', '.join(written)}" if written else ""
    model = job.names.get("model", "the model")
    lacks = [f"{item.layout} lacks {gib(item.missing_bytes)} GiB of {_PLACES[item.place]}" for item in nearest]

    def todo() -> str:
        ways = [f"fits with {way}" for way in _changes(job)] or [f"may fit with {way}" for way in _perhaps(job)]
        ways += [f"fits with {way}" for way in (*_several(job), *_besides_qlora(job))]
        return "\n  ".join([*lacks, *(ways or ["no change of length, GPUs or method fits: take a smaller model"])])

    return _Answer(f"{model} at {job.tokens} fits nowhere on {gpus}{pinned}", todo)  # each change is a search


def _perhaps(job: Job) -> Iterator[str]:
    """What is left where no change surely fits: a loss without all logits, and the longest half, that may fit."""
    for change in program_changes(job):
        if change.same and _may_fit(change.applied(job)):
            yield f"{change.option}, {change.words}"
    yield from _shorter(job, _may_fit)


def _shorter(job: Job, holds: Callable[[Job], bool]) -> Iterator[str]:
    """The longest half, quarter ... of a sequence with which something holds, of no less than samples' mean."""
    length, least = job.seq_len // 2, max(SHORTEST, job.training.mean_len or 0)
    while length >= least:
        if holds(attrs.evolve(job, training=attrs.evolve(job.training, seq_len=length))):
            yield f"--seq-len {length}"
            return
        length //= 2


def _written(job: Job) -> tuple[str, ...]:
    """The pins that somebody wrote: who only tries a value says so besides."""
    return tuple(dict.fromkeys(str(pin) for pin in job.pins if str(pin.override.origin)))


_PLACES = {"gpu": "GPU memory", "host": "host RAM", "nvme": "NVMe"}


def _changes(job: Job) -> Iterator[str]:
    """Changes that make it fit, the smallest of each kind."""
    for override in dict.fromkeys(pin.override.path for pin in job.pins):
        rest = attrs.evolve(job, pins=tuple(pin for pin in job.pins if pin.override.path != override))
        if _fits(rest):
            yield f"{override} left to the planner"
    if job.training.activation_offloading and _fits(_kept_on_gpus(job)):
        yield "--no-activation-offloading"
    changes = list(program_changes(job))
    for change in changes:
        if change.same and _fits_with(job, change):
            yield f"{change.option}, {change.words}"
    rank = 1 << max((job.training.lora_rank - 1).bit_length() - 1, 0)  # the next smaller power of two
    while job.training.method != "full" and rank >= LEAST_RANK:
        if _fits(attrs.evolve(job, training=attrs.evolve(job.training, lora_rank=rank))):
            yield f"--lora-rank {rank}"
            break
        rank //= 2
    yield from _shorter(job, _fits)
    memory = job.hardware.host_memory_bytes * 2
    while memory <= MOST_HOST_BYTES:
        if _fits(attrs.evolve(job, hardware=attrs.evolve(job.hardware, host_memory_bytes=memory))):
            yield f"{gib(memory)} GiB of RAM a node (--set hardware.host_memory='{memory // 2**30} GiB')"
            break
        memory *= 2
    network = job.network if job.nodes > 1 else named(ASSUMED_NETWORK)
    for nodes, per_node in _larger(job):
        free = tuple(pin for pin in job.pins if pin.field not in ("accumulation", "train_batch"))
        wishes = attrs.evolve(job.training, global_batch=None)
        more = attrs.evolve(job, nodes=nodes, gpus_per_node=per_node, network=network, pins=free, training=wishes)
        if _fits(more):
            yield f"--gpus {more.world}" + (f" --nodes {nodes}" if nodes > 1 else "")
            break
    methods = (change.option for change in changes if change.field == _METHOD and _fits_with(job, change))
    yield from itertools.islice(methods, 1)


def _kept_on_gpus(job: Job) -> Job:
    """The job whose activations do not wait in the node's RAM, checkpointed or not."""
    pins = tuple(pin for pin in job.pins if pin.override.path != "training.activation_offloading")
    return attrs.evolve(job, pins=pins, training=attrs.evolve(job.training, activation_offloading=False))


def _several(job: Job) -> Iterator[str]:
    """Changes of the program at once, where none that trains the same does alone: of these, or else beside a method."""
    changes, holds = list(program_changes(job)), functools.partial(_fits_with, job)
    if any(change.same and holds(change) for change in changes):
        return
    if (several := fewest(changes, holds)) is not None:
        yield f"{several.option}, {several.words}"
        return
    methods = [change for change in changes if change.field == _METHOD]
    if not any(map(holds, methods)):
        yield from itertools.islice(_beside_methods(job, methods), 1)


def _beside_methods(job: Job, methods: Iterable[ProgramChange]) -> Iterator[str]:
    for method in methods:
        asked = method.applied(job)
        holds = functools.partial(_fits_with, asked)
        kept = [change for change in program_changes(asked) if change.same]
        besides = next(filter(holds, kept), None) or fewest(kept, holds)
        if besides is not None:
            yield at_once([method, besides]).option


def _besides_qlora(job: Job) -> Iterator[str]:
    """Where a base in 4 bits is too large: a release that packs experts too, or weights that stage 3 cuts as it makes
    them, for each GPU loads those in 4 bits whole."""
    wishes = job.training
    if wishes.method != "qlora":
        return
    if job.model.experts and not job.model.experts_apart:
        packed = attrs.evolve(wishes, transformers=_PACKS_EXPERTS, lora_targets=ATTENTION)
        try:
            model = by_release(job.model, packed, job.provenance)
        except DsgenError:
            model = job.model
        if model.experts_apart and _fits(attrs.evolve(job, model=model, training=packed)):
            option = f"--transformers {_PACKS_EXPERTS} --lora-targets {','.join(ATTENTION)}"
            yield f"{option}, whose experts bitsandbytes packs: those of 5 stay in 16 bits"
    if _fits(attrs.evolve(job, training=attrs.evolve(wishes, method="lora"))):
        yield "--method lora: every GPU loads a base in 4 bits whole, and stage 3 makes one in 16 bits in shares"


def _larger(job: Job) -> Iterator[tuple[int, int]]:
    """Clusters to try, as nodes and GPUs of each: first the rest of the node, then more nodes, doubling."""
    nodes, per_node = job.nodes, job.gpus_per_node
    while per_node < job.hardware.gpus_per_node:
        per_node = min(2 * per_node, job.hardware.gpus_per_node)
        yield nodes, per_node
    while 2 * nodes <= MOST_NODES:
        nodes *= 2
        yield nodes, per_node
