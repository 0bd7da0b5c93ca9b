"""A job to a question: what pins say is taken exactly, whether it fits or not; the rest is chosen as the planner would.

The planner leaves out what it would not advise; here only what DeepSpeed cannot run at all is a mistake.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from dsgen.asking.memory_questions.loaders import BY_PROGRAM
from dsgen.asking.memory_questions.questions import CHOSEN, Question, Said, place, said_of
from dsgen.deepspeed import surface
from dsgen.deepspeed.keys import lookup
from dsgen.jobs.contradictions import idle_in_plans
from dsgen.jobs.job import STATES, Job, Unsure
from dsgen.jobs.samples import said_of_scores
from dsgen.linting import meanings
from dsgen.memory import MemoryEstimate, Verdict, doubted, estimate, widened
from dsgen.memory.backward import aside
from dsgen.memory.loading import under_zero_init
from dsgen.memory.older_releases import shares_out_at_0
from dsgen.memory.secondary import is_counted
from dsgen.memory.states import takes
from dsgen.memory.widened import cast_bytes
from dsgen.planning.candidates import search
from dsgen.planning.planner import decide
from dsgen.planning.whole_nodes import counts_on_a_whole_node
from dsgen.shapes.errors import mistake
from dsgen.shapes.layers import TOLD
from dsgen.shapes.makers import maker_of
from dsgen.shapes.pins import Pin
from dsgen.shapes.units import gib
from dsgen.strategies.buffers import choose
from dsgen.strategies.constraints import EXPERTS, OF_LAYOUTS, Keys, cannot, keys, of_layout, refusals
from dsgen.strategies.counted import BOUNDED, LOOSE, NARROW, SECOND_COPY
from dsgen.strategies.strategies import Layout, Strategy, batches, layouts, strategy
from dsgen.strategies.wishes import check_wishes

__all__ = ["FIELDS", "REFUSED_BATCH", "ask", "at_stage", "closest", "counted", "doubts", "not_counted", "refuse"]

_STAGES = (0, 1, 2, 3)
_PLACES = ("none", "cpu", "nvme")
_RANK = {Verdict.FITS: 0, Verdict.UNCERTAIN: 1, Verdict.DOES_NOT_FIT: 2}
_ABOUT = 1.05  # of what the best lacks: offload that saves less of it is not worth being shown
_WHOLE = 3  # the stage that partitions the parameters
_AUTOCAST = "torch_autocast.enabled"
# What a constraint is about -> the strategy that has it, in words; of others the wish is named beside the strategy.
_WHAT = {"tp": "tensor parallelism over {0.tp} GPUs", "stage": "{0}"}
REFUSED_BATCH = "DeepSpeed refuses that"  # ends the note on batch sizes that do not multiply up
# Fact as a person names it -> the field of a strategy
FIELDS = {
    "stage": "stage",
    "offload optimizer": "offload_optimizer",
    "offload parameters": "offload_param",
    "tensor parallel": "tp",
    "micro-batch": "micro_batch",
    "accumulation": "accumulation",
    "checkpointing": "checkpointing",
    "precision": "precision",
}


def ask(job: Job) -> Question:
    """The question that a job asks.

    Raises:
        DsgenError: Sizes that no run has: a degree that divides neither GPUs nor heads, a batch that never adds up.
    """
    check_wishes(job)
    chosen = _planned(job) or _nearest(job)
    refuse(job, chosen)
    pinned: dict[str, Pin] = {}
    for pin in job.pins:
        if len(pin.allowed) == 1:
            pinned.setdefault(pin.field, pin)
    said = {
        name: Said(getattr(chosen, field), str(pinned[field].override.origin) if field in pinned else CHOSEN)
        for name, field in FIELDS.items()
    }
    said |= said_of(job, chosen.precision)
    keys = meanings.uncounted(job.deepspeed, surface.load(job.version), counted(job, chosen))
    idle = idle_in_plans(job.training, job.provenance)
    whole = counts_on_a_whole_node(job, estimate(job, chosen).host)
    notes = (*job.warnings, *idle, *((whole,) if whole else ()), *doubts(job, chosen), *not_counted(job, chosen, keys))
    return Question(job=job, strategy=chosen, said=said, notes=notes)


def _planned(job: Job) -> Strategy | None:
    """What the planner chooses, where it finds something that fits or may."""
    result = search(job)
    if not (result.fitting or result.uncertain):
        return None
    return decide(job, result).chosen.strategy


def _nearest(job: Job) -> Strategy:
    """Of all that the pins allow the strategy that comes nearest to fitting, the simplest of equals."""
    refusals: list[str] = []
    strategies: list[Strategy] = []
    for layout in _allowed(job):
        refuse(job, layout)
        triples = batches(job, layout)
        if isinstance(triples, str):
            refusals.append(triples)
            continue
        sizes = choose(job, layout.stage, layout.tp, layout.offload_optimizer, layout.offload_param)
        strategies.append(strategy(layout, triples[-1], sizes))
    if not strategies:
        raise mistake(
            refusals[0] if refusals else "what was said leaves no strategy", todo=_said(job), code="does-not-fit"
        )
    return closest(job, strategies)


def closest(job: Job, strategies: Sequence[Strategy]) -> Strategy:
    """The first of those strategies that fits, else the first of those that lack about as little as the best."""
    if len(strategies) == 1:
        return strategies[0]
    known = [estimate(job, item) for item in strategies]
    best = min(_RANK[memory.verdict] for memory in known)
    near = [
        (item, _missing(memory))
        for item, memory in zip(strategies, known, strict=True)
        if _RANK[memory.verdict] == best
    ]
    enough = min(missing for _, missing in near) * _ABOUT if best else math.inf
    return next(item for item, missing in near if missing <= enough)


def _missing(memory: MemoryEstimate) -> int:
    return sum(max(0, place.high_bytes - place.limit_bytes) for place in (memory.gpu, memory.host, memory.nvme))


def _allowed(job: Job) -> tuple[Layout, ...]:
    """Every layout that the pins leave, as DeepSpeed makes it: the simplest first."""
    pinned = {pin.field for pin in job.pins}
    tried = [item if isinstance(item, Layout) else item.layout for item in layouts(job)]
    moves = job.hardware.vendor != "cpu" or "offload_optimizer" in pinned
    few = job.training.method != "full" and "offload_optimizer" not in pinned  # adapters have few states
    places = _PLACES if job.hardware.nvme_capacity_bytes or "offload_optimizer" in pinned else _PLACES[:-1]
    offered: dict[str, Sequence[Any]] = {
        "stage": _STAGES,
        "offload_optimizer": places if moves and not few else _PLACES[:1],
        "offload_param": places if moves else _PLACES[:1],
        "tp": sorted({item.tp for item in tried}),
        "checkpointing": (False, True),
        "precision": tuple(dict.fromkeys(item.precision for item in tried)),
    }
    kept = [
        [value for value in values if all(value in pin.allowed for pin in job.pins if pin.field == field)]
        for field, values in offered.items()
    ]
    allowed = []
    for values in itertools.product(*kept):
        layout = Layout(**dict(zip(offered, values, strict=True)))
        real = at_stage(layout)
        unasked = layout.tp > 1 and "tp" not in pinned  # where nothing fits it would only be the most exotic misfit
        if not unasked and (real == layout or "stage" in pinned):
            allowed.append(real)
    return tuple(dict.fromkeys([item for item in allowed if cannot(job, item) is None] or allowed))


def at_stage(layout: Layout) -> Layout:
    """What DeepSpeed makes of it: stage 0 offloads nothing; below 3 parameters stay, and NVMe means CPU memory."""
    optimizer = layout.offload_optimizer if layout.stage else "none"
    if layout.stage == _WHOLE:
        return layout
    return attrs.evolve(layout, offload_optimizer="cpu" if optimizer == "nvme" else optimizer, offload_param="none")


def refuse(job: Job, chosen: Layout) -> None:
    """Refuse what DeepSpeed or peft cannot run at all, or nobody has counted: see `dsgen.strategies.constraints`.

    Raises:
        DsgenError: The first constraint that is broken.
    """
    check_wishes(job)
    at = of_layout(job, chosen)
    for item in refusals(at, OF_LAYOUTS):
        if item.fatal and not item.of_keys:
            what = _WHAT.get(item.about, f"{item.about} with {{0}}").format(chosen)
            raise mistake(what, must=item.says(at), where=_place(job, item.about), todo=item.helps(at))


def doubts(job: Job, chosen: Layout, beside: Keys | None = None) -> Iterator[str]:
    """What runs, or is counted as if a key were away, and a person should know of all the same.

    Args:
        job: The job.
        chosen: What is counted.
        beside: The keys of the config that is asked about; without one those of the job.
    """
    yield from _ignored(job, chosen)
    for wish in ("lora_rank", "lora_targets", "lora_dropout", "lora_train_embeddings"):
        if job.training.method == "full" and (said := place(job, f"training.{wish}")):
            yield f"training.{wish} ({said}): method full has no adapters; lora and qlora have"
    way, by = job.training.loading, place(job, "training.loading")
    winner = job.provenance.winner("training.loading")  # no wish of a person's: what the program does by itself
    told = by is None or by.startswith(BY_PROGRAM) or winner is None or winner.reason == TOLD
    asked = not told and way not in ("auto", "mapped")
    if asked and under_zero_init(job.training, chosen.stage):
        yield (
            f"training.loading {way} ({by}) does nothing: under zero.Init stage 3 makes each module in "
            f"{chosen.precision} and cuts it, and rank 0 alone reads the files; --no-zero-init says that none is called"
        )
    fixed = maker_of(job.hardware.vendor).fixed
    if fixed and job.training.expandable_segments and place(job, "training.expandable_segments"):
        yield f"expandable segments are not counted: {fixed}"
    at = of_layout(job, chosen, beside or _beside(job))
    noted = (item for item in refusals(at) if item not in EXPERTS)  # `doubted` says those, and what they do to memory
    yield from (item.says(at) for item in noted if item.of_keys or not item.fatal)
    if said := said_of_scores(job, job.training.micro_batch == 1):
        yield said
    if why := doubted(job.model, job.training, chosen.stage):
        yield why
    if not chosen.stage and chosen.precision == "bf16" and shares_out_at_0(job.version):
        yield (
            f"DeepSpeed {job.version} shares out master weights and states in bf16 at stage 0, all gradients in fp32: "
            "counted as newer releases have it, and the interval reaches as far as that may change it"
        )
    if narrow(job, chosen):
        also = ", and the optimizer's states" if job.narrow == STATES else ""
        yield f"fp32 master weights: in 16 bits, as the config asks, with their gradients{also}"


def _beside(job: Job) -> Keys:
    """The keys that a job says; with "optimizer: null" the program brings its own."""
    said = job.provenance.history("deepspeed.optimizer")
    own = bool(said) and said[-1].value is None
    return keys(lambda path: lookup(job.deepspeed, path)[1])._replace(own=own)


def _ignored(job: Job, chosen: Layout) -> Iterator[str]:
    """Each offload that was said and that the stage has not."""
    for pin in job.pins:
        if pin.field in ("offload_optimizer", "offload_param") and getattr(chosen, pin.field) not in pin.allowed:
            at = of_layout(job, attrs.evolve(chosen, **{pin.field: pin.allowed[-1]}))
            why = next((item.says(at) for item in refusals(at) if item.about == pin.field), "")
            yield f"{pin}: {why}; it is counted where it is"


def narrow(job: Job, chosen: Layout) -> bool:
    """Whether master weights are counted in 16 bits."""
    return takes(job.narrow, chosen, job.training)


def counted(job: Job, chosen: Strategy) -> tuple[str, ...]:
    """The keys that are counted for this strategy, and not for every one."""
    divides = not job.world % min(max(chosen.buffers.secondary, 1), job.world)
    copied = (SECOND_COPY,) if is_counted(job, chosen) and divides else ()
    loose = (LOOSE,) if aside(job, chosen) else ()
    return (*copied, *loose, *(NARROW if narrow(job, chosen) else ()))


def not_counted(job: Job, chosen: Strategy, paths: Iterable[str]) -> Iterator[str]:
    """What is said of keys that change what is held, and are not counted."""
    for path in paths:
        field = BOUNDED.get(path)
        if path == _AUTOCAST:
            yield f"{path}: {_autocast(job, chosen)}"
            continue
        if field is None:
            yield f"{path}: what it saves or takes is not counted"
            continue
        alone = attrs.evolve(job, unsure=Unsure(**{field: getattr(job.unsure, field)}))
        if any(widened(alone, chosen, chosen.buffers)):  # else it changes nothing here
            yield f"{path}: what it takes is in the interval, not in the peak"


def _autocast(job: Job, chosen: Strategy) -> str:
    """What a person should know of it: weights that are fp32 stay so, and torch keeps their casts as forward runs."""
    if chosen.precision != "fp32":
        return f"not counted; {chosen.precision}.enabled casts the model itself"
    said = "weights, gradients and states are counted in fp32, as it leaves them; what is computed in 16 bits"
    if chosen.stage == _WHOLE:  # what it gathers is in 16 bits already
        return f"{said}, and gathered, is in the interval, not in the peak"
    casts = gib(cast_bytes(job, chosen))
    return f"{said}, and a cast of each matrix, {casts} GiB, is in the interval, not in the peak"


def _place(job: Job, field: str) -> str | None:
    pinned = next((str(pin.override.origin) for pin in job.pins if pin.field == field), None)
    return pinned or place(job, f"training.{field}")


def _said(job: Job) -> str | None:
    return f"Said: {', '.join(dict.fromkeys(str(pin) for pin in job.pins))}." if job.pins else None
