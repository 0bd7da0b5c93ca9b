"""A job to a question: what pins say is taken exactly, whether it fits or not; the rest is chosen as the planner would.

The planner leaves out what it would not advise; here only what DeepSpeed cannot run at all is a mistake.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from dsgen.asking.memory_questions.questions import CHOSEN, Question, Said, named, place
from dsgen.deepspeed import surface
from dsgen.families.parameters import check_dropout, check_embeddings, check_head
from dsgen.jobs.job import STATES, Job, Unsure
from dsgen.linting import meanings
from dsgen.memory import MemoryEstimate, Verdict, doubted, estimate, widened
from dsgen.memory.backward import aside
from dsgen.memory.secondary import counts
from dsgen.memory.states import takes
from dsgen.planning.candidates import search
from dsgen.planning.planner import decide
from dsgen.shapes.errors import mistake
from dsgen.shapes.pins import Pin
from dsgen.strategies.buffers import choose
from dsgen.strategies.copies import no_copies, uncounted_encoder
from dsgen.strategies.strategies import Layout, Strategy, batches, layouts, strategy
from dsgen.strategies.unsplit import unsplit

__all__ = ["FIELDS", "ask", "at_stage", "closest", "counted", "doubts", "not_counted", "refuse"]

_STAGES = (0, 1, 2, 3)
_PLACES = ("none", "cpu", "nvme")
_RANK = {Verdict.FITS: 0, Verdict.UNCERTAIN: 1, Verdict.DOES_NOT_FIT: 2}
_ABOUT = 1.05  # of what the best lacks: offload that saves less of it is not worth being shown
_WHOLE = 3  # the stage that partitions the parameters
_TP = (0, 16, 4)  # first release with AutoTP for training
_TP_AT_3 = (0, 19, 4)  # first release that takes it with stage 3
_INSTEAD = {
    (0, "offload_optimizer"): "offloads nothing: the optimizer is counted on the GPU",
    (0, "offload_param"): "offloads nothing: the parameters are counted on the GPU",
    (1, "offload_optimizer"): "swaps nothing to NVMe: the optimizer is counted in CPU memory",
    (1, "offload_param"): "offloads no parameters: they are counted on the GPU",
}
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
    said |= named(job)
    keys = meanings.uncounted(job.deepspeed, surface.load(job.version), counted(job, chosen))
    notes = (*job.warnings, *doubts(job, chosen), *not_counted(job, chosen, keys))
    return Question(job=job, strategy=chosen, said=said, notes=notes)


def _planned(job: Job) -> Strategy | None:
    """What the planner chooses, where it finds something that fits or may."""
    found = search(job)
    if not (found.fitting or found.uncertain):
        return None
    return decide(job, found).chosen.strategy


def _nearest(job: Job) -> Strategy:
    """Of all that the pins allow the strategy that comes nearest to fitting, the simplest of equals."""
    refusals: list[str] = []
    found: list[Strategy] = []
    for layout in _allowed(job):
        refuse(job, layout)
        triples = batches(job, layout)
        if isinstance(triples, str):
            refusals.append(triples)
            continue
        sizes = choose(job, layout.stage, layout.tp, layout.offload_optimizer, layout.offload_param)
        found.append(strategy(layout, triples[-1], sizes))
    if not found:
        raise mistake(
            refusals[0] if refusals else "what was said leaves no strategy", todo=_said(job), code="does-not-fit"
        )
    return closest(job, found)


def closest(job: Job, found: Sequence[Strategy]) -> Strategy:
    """The first of those strategies that fits, else the first of those that lack about as little as the best."""
    if len(found) == 1:
        return found[0]
    known = [estimate(job, item) for item in found]
    best = min(_RANK[memory.verdict] for memory in known)
    near = [
        (item, _missing(memory)) for item, memory in zip(found, known, strict=True) if _RANK[memory.verdict] == best
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
    found = []
    for values in itertools.product(*kept):
        layout = Layout(**dict(zip(offered, values, strict=True)))
        real = at_stage(layout)
        unasked = layout.tp > 1 and "tp" not in pinned  # where nothing fits it would only be the most exotic misfit
        if not unasked and (real == layout or "stage" in pinned):
            found.append(real)
    runs = [item for item in found if not no_copies(job, item)] or found
    known = [item for item in runs if not uncounted_encoder(job.model, job.training, item)]
    return tuple(dict.fromkeys(known or runs))


def at_stage(layout: Layout) -> Layout:
    """What DeepSpeed makes of it: stage 0 offloads nothing; below 3 parameters stay, and NVMe means CPU memory."""
    optimizer = layout.offload_optimizer if layout.stage else "none"
    if layout.stage == _WHOLE:
        return layout
    return attrs.evolve(layout, offload_optimizer="cpu" if optimizer == "nvme" else optimizer, offload_param="none")


def refuse(job: Job, chosen: Layout) -> None:
    """Refuse what DeepSpeed or peft cannot run at all.

    Raises:
        DsgenError: A degree that divides neither GPUs nor heads, or that the release does not take; a dropout for
            adapters of experts; embedding and head trained beside adapters where they are one, or nothing runs so.
    """
    if job.training.method != "full" and job.training.lora_dropout:
        check_dropout(job.model, job.training.lora_targets)
    if job.training.method != "full" and job.training.lora_train_embeddings:
        check_embeddings(job.model, job.training.lora_targets)
    if why := no_copies(job, chosen):
        raise mistake(f"lora_train_embeddings with {chosen}", must=why, code="refused")
    if job.training.method != "full" and job.training.chunked_loss:
        check_head(job.model, job.training.lora_targets)
    tp, release = chosen.tp, tuple(int(part) for part in job.version.split("."))
    heads, keys = job.model.attention_heads, job.model.kv_heads
    if tp == 1:
        return
    if release < _TP:
        why = f"DeepSpeed {job.version} has no AutoTP for training; 0.16.4 is the first"
    elif chosen.stage == _WHOLE and release < _TP_AT_3:
        why = f"DeepSpeed {job.version} refuses AutoTP with stage 3; 0.19.4 is the first that does not"
    elif found := unsplit(job):
        why = found
    elif job.world % tp:
        why = f"{job.world} GPUs do not divide into tensor-parallel groups of {tp}"
    elif heads % tp or keys % tp:
        why = f"{heads} heads and {keys} key heads do not divide by {tp}"
    if why:
        raise mistake(f"tensor parallelism over {tp} GPUs", must=why, where=_place(job, "tp"))


def doubts(job: Job, chosen: Layout) -> Iterator[str]:
    """What runs, and a person should know of all the same."""
    for field in ("offload_optimizer", "offload_param"):
        for pin in job.pins:
            if pin.field == field and getattr(chosen, field) not in pin.allowed:
                yield f"{pin}: at stage {chosen.stage} DeepSpeed {_INSTEAD[min(chosen.stage, 1), field]}"
    for wish in ("lora_rank", "lora_targets", "lora_dropout", "lora_train_embeddings"):
        if job.training.method == "full" and (said := place(job, f"training.{wish}")):
            yield f"training.{wish} ({said}): method full has no adapters; lora and qlora have"
    sixteen = chosen.precision != "fp32"
    if chosen.precision == "bf16" and not job.hardware.bf16_flops_per_second:
        yield "this GPU has no bf16 units: torch emulates them, slowly"
    if chosen.stage == 0 and chosen.tp > 1 and sixteen:
        yield "AutoTP at stage 0 in 16 bit computes a wrong gradient norm (DeepSpeed 0.19.8); stage 1 is right"
    elif chosen.stage == 0 and chosen.precision == "fp16":
        yield "since 0.18.3 DeepSpeed does not scale the loss in fp16 at stage 0, and hardly learns; stage 1 does"
    if why := doubted(job.model, job.training, chosen.stage):
        yield why
    if chosen.tp > 1 and job.training.chunked_loss:
        yield "a chunked loss needs the whole head, and AutoTP shares it out: Liger's does not run like this"
    if narrow(job, chosen):
        also = ", and the optimizer's states" if job.narrow == STATES else ""
        yield f"fp32 master weights: in 16 bits, as the config asks, with their gradients{also}"
    if chosen.tp > job.gpus_per_node:
        yield f"tensor parallelism over {chosen.tp} GPUs leaves the node of {job.gpus_per_node}"


def narrow(job: Job, chosen: Layout) -> bool:
    """Whether master weights are counted in 16 bits."""
    return takes(job.narrow, chosen, job.training.optimizer)


def counted(job: Job, chosen: Strategy) -> tuple[str, ...]:
    """The keys that are counted for this strategy, and not for every one."""
    divides = not job.world % min(max(chosen.buffers.secondary, 1), job.world)
    copied = (meanings.SECOND_COPY,) if counts(job, chosen) and divides else ()
    loose = (meanings.LOOSE,) if aside(job, chosen) else ()
    return (*copied, *loose, *(meanings.NARROW if narrow(job, chosen) else ()))


def not_counted(job: Job, chosen: Strategy, paths: Iterable[str]) -> Iterator[str]:
    """What is said of keys that change what is held, and are not counted."""
    for path in paths:
        field = meanings.BOUNDED.get(path)
        if field is None:
            yield f"{path}: what it saves or takes is not counted"
            continue
        alone = attrs.evolve(job, unsure=Unsure(**{field: getattr(job.unsure, field)}))
        if any(widened(alone, chosen, chosen.buffers)):  # else it changes nothing here
            yield f"{path}: what it takes is in the interval, not in the peak"


def _place(job: Job, field: str) -> str | None:
    return next((str(pin.override.origin) for pin in job.pins if pin.field == field), None)


def _said(job: Job) -> str | None:
    return f"Said: {', '.join(dict.fromkeys(str(pin) for pin in job.pins))}." if job.pins else None
