"""Single changes of a strategy that could make it faster: what would be run instead, at which micro-batches."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import attrs

from dsgen.asking.memory_questions.questions import Question, buffers
from dsgen.asking.memory_questions.scenario_questions import at_stage
from dsgen.deepspeed.keys import lookup
from dsgen.planning.candidates import rises
from dsgen.strategies.buffers import Buffers, choose
from dsgen.strategies.constraints import CONSTRAINTS, keys, of_layout, refusals
from dsgen.strategies.strategies import DEGREES, FAST_LINKS, MOST_SEQUENCES, Strategy, best_precision

__all__ = ["Idea", "ideas", "laid_out"]

_STAGES = (0, 1, 2, 3)
_PLACES = ("none", "cpu", "nvme")  # the nearest to the GPU first
_SPLITTING = (1, 2)  # stages beside which AutoTP is offered, as a plan offers it
_WHOLE = 3  # the stage that partitions the parameters
# Fields of Buffers that are changed together -> the stages that read them.
_SIZES: tuple[tuple[tuple[str, ...], tuple[int, ...]], ...] = (
    (("reduce_bucket",), (1, 2, 3)),
    (("prefetch",), (3,)),
    (("persistence",), (3,)),
    (("max_live", "max_reuse"), (3,)),
    (("sub_group",), (3,)),
)


class Idea(NamedTuple):
    """One change.

    Attributes:
        kind: What it changes.
        strategy: What is run then; its micro-batch is one of `sizes`, still to be chosen.
        sizes: Micro-batches to try, the best guess first.
        fastest: Whether the fastest of them that fits is taken, or the first.
    """

    kind: str
    strategy: Strategy
    sizes: Sequence[int]
    fastest: bool = False


def ideas(question: Question, now: Strategy) -> Iterator[Idea]:
    """Every change of a strategy that DeepSpeed runs and that keeps the sequences of a step as they are.

    Args:
        question: What was asked; the keys of its config hold for every change.
        now: The strategy to change: the one asked for, or one that was changed already.
    """
    every = itertools.chain(_layouts(question, now), _batches(question, now), _buffers(question, now))
    return (idea for idea in every if idea.sizes and _runs(question, now, idea.strategy))


def _runs(question: Question, now: Strategy, other: Strategy) -> bool:
    """Whether a changed strategy breaks no constraint that the strategy itself does not break."""
    subject, job = question.subject, question.job
    said = keys(subject.value if subject is not None else lambda path: lookup(job.deepspeed, path)[1])
    broken = [
        {item.code for item in refusals(of_layout(job, strategy, said), CONSTRAINTS)} for strategy in (now, other)
    ]
    return broken[1] <= broken[0]


def laid_out(question: Question, now: Strategy, **changed: Any) -> Strategy:
    """A strategy with another layout, as its stage makes it; sizes that were changed on the way here stay changed."""
    wanted: Strategy = attrs.evolve(now, **changed)
    real = at_stage(wanted)
    other = attrs.evolve(wanted, offload_optimizer=real.offload_optimizer, offload_param=real.offload_param)
    mine, theirs = buffers(question.job, question.subject, now), buffers(question.job, question.subject, other)
    kept = {name: size for name, size in now.buffers._asdict().items() if size != getattr(mine, name)}
    return attrs.evolve(other, buffers=theirs._replace(**kept))


def _divisors(question: Question, now: Strategy, other: Strategy) -> list[int]:
    """Micro-batches that make the same sequences a step, the smallest first; none where its replicas cannot."""
    sequences, uneven = divmod(now.global_batch * other.tp, question.job.world)
    return [] if uneven else [size for size in range(1, min(sequences, MOST_SEQUENCES) + 1) if not sequences % size]


def _layouts(question: Question, now: Strategy) -> Iterator[Idea]:
    """Another stage, less offload, another degree or precision, and no recomputation."""
    changes: list[tuple[str, dict[str, Any]]] = [("stage", {"stage": stage}) for stage in _STAGES if stage != now.stage]
    for kind, fields in (
        ("optimizer", ("offload_optimizer",)),
        ("parameters", ("offload_param",)),
        ("offload", ("offload_optimizer", "offload_param")),
    ):
        nearer = _PLACES[: min(_PLACES.index(getattr(now, field)) for field in fields)]
        changes += [(kind, dict.fromkeys(fields, place)) for place in nearer]
    if now.checkpointing:
        changes.append(("checkpointing", {"checkpointing": False}))
    if now.precision == "fp32" != best_precision(question.job):
        changes.append(("precision", {"precision": best_precision(question.job)}))
    for kind, changed in changes:
        other = laid_out(question, now, **changed)
        # The micro-batch as it is, and where it does not fit a smaller one.
        yield Idea(kind, other, [size for size in _divisors(question, now, other) if size <= now.micro_batch][::-1])
    for degree in _degrees(question, now):
        other = laid_out(question, now, tp=degree)
        yield Idea("tp", other, _divisors(question, now, other), True)


def _degrees(question: Question, now: Strategy) -> list[int]:
    """Other degrees of AutoTP that a plan would try."""
    job = question.job
    splits = job.hardware.intra_node_link in FAST_LINKS and now.stage in _SPLITTING
    wanted = [degree for degree in DEGREES if degree != now.tp and not job.world % degree]
    return [degree for degree in wanted if degree == 1 or (splits and degree <= job.gpus_per_node)]


def _batches(question: Question, now: Strategy) -> Iterator[Idea]:
    """A larger micro-batch, alone and with the room of recomputation, and a smaller one where that may be faster."""
    sizes = _divisors(question, now, now)
    larger = [size for size in sizes if size > now.micro_batch]
    others = [size for size in sizes if size != now.micro_batch] if rises(question.job) else larger
    yield Idea("micro-batch", now, others, True)
    if not now.checkpointing:
        yield Idea("checkpointing", laid_out(question, now, checkpointing=True), larger, True)


def _buffers(question: Question, now: Strategy) -> Iterator[Idea]:
    """Buffers as a plan has them, each by itself."""
    if not now.stage:
        return
    job = question.job
    planned = choose(job, now.stage, now.tp, now.offload_optimizer, now.offload_param)
    ways = [
        (fields[0], {field: getattr(planned, field) for field in fields}) for fields, at in _SIZES if now.stage in at
    ]
    ways.append(("overlap_comm", {"overlap_comm": not now.buffers.overlap_comm}))
    if now.stage == _WHOLE and job.nodes > 1 and now.tp == 1:
        ways.append(("hpz", {"secondary": job.gpus_per_node}))
    for kind, changed in ways:
        other: Buffers = now.buffers._replace(**changed)
        if other != now.buffers:
            yield Idea(kind, attrs.evolve(now, buffers=other), [now.micro_batch])
