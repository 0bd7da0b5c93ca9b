"""A person's own run beside what is predicted of it: each number they read, and what could make the difference."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from dsgen.asking.memory_questions.alternatives import places
from dsgen.asking.memory_questions.questions import Question, strategy_of
from dsgen.jobs.job import Job
from dsgen.memory import MemoryEstimate, Place, Verdict, estimate
from dsgen.memory.reserved import ReservedBytes
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.units import BYTES, gib, parse
from dsgen.strategies.constraints import cannot
from dsgen.strategies.strategies import Strategy

__all__ = ["READINGS", "Observation", "OtherRun", "observe", "observed"]

# What a person reads -> from where.
READINGS = {
    "allocated": "torch.cuda.max_memory_allocated",
    "reserved": "torch.cuda.max_memory_reserved",
    "nvidia-smi": "nvidia-smi",
}
# How much of a difference another run must explain to be named, and how much it may be beyond.
_LEAST_EXPLAINED, _MOST_EXPLAINED = 0.5, 1.5
_MOST_RUNS = 4
_LONGER = (0.5, 2.0, 4.0)  # times the length, and times the micro-batch
_OLD_ALLOCATOR = "torch's default settings of the allocator"


@attrs.frozen
class OtherRun:
    """A run that takes more nearly what was observed: what it has otherwise, as options and words, and its number."""

    options: Mapping[str, Any]
    words: str
    bytes: int


@attrs.frozen(kw_only=True)
class Observation:
    """One number that a person read.

    Attributes:
        reading: allocated, reserved or nvidia-smi.
        bytes: What was read.
        expected: What is predicted of the same number, with its interval.
        others: Runs that would take more nearly as much, the nearest first; none where it lies in the interval.
    """

    reading: str
    bytes: int
    expected: ReservedBytes
    others: tuple[OtherRun, ...] = ()

    @property
    def more(self) -> int:
        """What was read beyond what is predicted; below 0 where less was read."""
        return self.bytes - self.expected.bytes

    @property
    def within(self) -> bool:
        """Whether it lies in the interval."""
        return self.expected.low <= self.bytes <= self.expected.high


def observed(texts: Iterable[str]) -> dict[str, int]:
    """Readings as people write them: `reserved=61.2GiB`.

    Raises:
        DsgenError: No such reading, no size, or two of one reading.
    """
    readings: dict[str, int] = {}
    for text in texts:
        reading, size = _observed(text)
        if reading in readings:
            raise mistake(f"--observed {reading} is given twice", must="it is one number", code="contradiction")
        readings[reading] = size
    return readings


def _observed(text: str) -> tuple[str, int]:
    reading, equals, size = text.partition("=")
    if not equals or reading not in READINGS:
        raise mistake(
            f"--observed is {text!r}",
            must=f"it must be one of {', '.join(READINGS)}, an equals sign and a size",
            todo="--observed reserved=61.2GiB",
            code="bad-value",
        )
    try:
        count = int(parse(size, BYTES))
    except ValueError as problem:
        raise mistake(f"--observed {reading} is {size!r}", must=str(problem), code="bad-value") from None
    if count <= 0:
        raise mistake(f"--observed {reading} is {size!r}", must="it must be more than 0", code="bad-value")
    return reading, count


def observe(question: Question, readings: Mapping[str, int]) -> tuple[Observation, ...]:
    """Each reading of a run beside what is predicted of it.

    Args:
        question: What ran, as a person says it.
        readings: Reading -> bytes of the fullest GPU.

    Raises:
        DsgenError: No such reading, one beyond the card, or torch allocated more than it reserved.
    """
    memory = estimate(question.job, question.strategy) if readings else None
    if memory is None:
        return ()
    _check(readings, memory.gpu)
    return tuple(_observation(question, memory, reading, size) for reading, size in readings.items())


def _check(readings: Mapping[str, int], gpu: Place) -> None:
    for reading, size in readings.items():
        if reading not in READINGS:
            raise mistake(
                f"observed has {reading!r}", must=f"it must be one of {', '.join(READINGS)}", code="bad-value"
            )
        if size > gpu.limit_bytes:
            raise mistake(
                f"--observed {reading} is {gib(size)} GiB",
                must=f"the GPU has {gib(gpu.limit_bytes)}",
                todo="It is of one GPU. Another card: --hw.",
                code="contradiction",
            )
    told = [(reading, readings[reading]) for reading in READINGS if reading in readings]
    for (less, small), (more, large) in itertools.pairwise(told):
        if small > large:
            raise mistake(
                f"--observed {less} is {gib(small)} GiB and {more} {gib(large)}",
                must=f"{less} is a part of {more}",
                code="contradiction",
            )


def _expected(memory: MemoryEstimate, reading: str) -> ReservedBytes:
    gpu = memory.gpu
    if reading == "allocated":
        more = gpu.allocated_bytes - gpu.peak_bytes
        return ReservedBytes(gpu.allocated_bytes, gpu.low_bytes + more, gpu.tensors_high_bytes + more)
    return gpu.shown if reading == "nvidia-smi" else gpu.reserved


def _observation(question: Question, memory: MemoryEstimate, reading: str, size: int) -> Observation:
    expected = _expected(memory, reading)
    plain = Observation(reading=reading, bytes=size, expected=expected)
    if plain.within:
        return plain
    near: dict[str, OtherRun] = {}
    for job, strategy, options, words in _runs(question):
        if cannot(job, strategy) is not None:
            continue
        try:
            memory = estimate(job, strategy)
        except DsgenError:
            continue  # adapters that this model does not have
        if memory.gpu.verdict is Verdict.DOES_NOT_FIT:
            continue  # it would not have run
        taken = _expected(memory, reading).bytes
        explained = (taken - expected.bytes) / plain.more
        if _LEAST_EXPLAINED <= explained <= _MOST_EXPLAINED and words not in near:
            near[words] = OtherRun(options, words, taken)
    ranked = sorted(near.values(), key=lambda one: abs(one.bytes - size))
    return attrs.evolve(plain, others=tuple(ranked[:_MOST_RUNS]))


def _runs(question: Question) -> Iterator[tuple[Job, Strategy, dict[str, Any], str]]:
    """Runs that differ in one thing that people take for another: job, strategy, options and words."""
    job, asked, training = question.job, question.strategy, question.job.training

    def unlike(words: str, **wished: Any) -> tuple[Job, Strategy, dict[str, Any], str]:
        return attrs.evolve(job, training=attrs.evolve(training, **wished)), asked, wished, words

    yield unlike(
        "expandable segments" if not training.expandable_segments else _OLD_ALLOCATOR,
        expandable_segments=not training.expandable_segments,
    )
    yield unlike(
        "a loss that holds all logits" if training.chunked_loss else "a chunked loss",
        chunked_loss=not training.chunked_loss,
    )
    for attention in ("eager", "flash"):
        if attention != training.attention:
            yield unlike(f"{attention} attention", attention=attention)
    for times in _LONGER:
        length = int(job.seq_len * times)
        if length:
            yield unlike(f"sequences of {length:,} tokens", seq_len=length)
    for method in ("full", "lora", "qlora"):
        if method != training.method:
            yield unlike(
                {"full": "training every weight"}.get(method, f"training with {method.upper()}"), method=method
            )
    without = "without" if asked.checkpointing else "with"
    option = "none" if asked.checkpointing else "full"
    other = strategy_of(question, checkpointing=not asked.checkpointing)
    yield job, other, {"checkpointing": option}, f"{without} activation checkpointing"
    for times in _LONGER:
        size = int(asked.micro_batch * times)
        if size:
            yield job, strategy_of(question, micro_batch=size), {"micro_batch": size}, f"micro-batch {size}"
    for stage, optimizer, parameters in places(question):
        if (stage, optimizer, parameters) == (asked.stage, asked.offload_optimizer, asked.offload_param):
            continue
        if stage != asked.stage and (optimizer, parameters) != (asked.offload_optimizer, asked.offload_param):
            continue
        other = strategy_of(question, stage=stage, offload_optimizer=optimizer, offload_param=parameters)
        if stage != asked.stage:
            yield job, other, {"zero_stage": stage}, f"ZeRO-{stage}"
        else:
            offload = {"cpu": "all" if parameters == "cpu" else "optimizer"}.get(optimizer, optimizer)
            yield job, other, {"offload": offload}, f"offload {offload}"
