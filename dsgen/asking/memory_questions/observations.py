"""A person's own run beside what is predicted of it: each number they read, and what could make the difference."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import attrs

from dsgen.asking.memory_questions.alternatives import places
from dsgen.asking.memory_questions.differences import HOST, OF_GPU, ReadPiece, differences
from dsgen.asking.memory_questions.questions import Question, strategy_of
from dsgen.jobs.job import Job
from dsgen.memory import MemoryEstimate, Place, Verdict, estimate
from dsgen.memory.card_numbers import card
from dsgen.memory.estimates import ERROR
from dsgen.memory.later import later
from dsgen.memory.reserved import ReservedBytes, Reserving
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.makers import NVIDIA, maker_of
from dsgen.shapes.profiles import Hardware
from dsgen.shapes.units import BYTES, gib, parse
from dsgen.strategies.constraints import cannot
from dsgen.strategies.strategies import Strategy

__all__ = ["READINGS", "Observation", "OtherRun", "compare", "observe", "observed"]

# What a person reads -> from where.
READINGS = {
    "allocated": "torch.cuda.max_memory_allocated",
    "reserved": "torch.cuda.max_memory_reserved",
    "nvidia-smi": "nvidia-smi",
    "host": "what the processes of a node hold of its RAM, as used in free",
}
_TOOLS = ("amd-smi", "hl-smi", "rocm-smi")  # of other makers: they read the same
MIB = 2**20
_Other = tuple[Mapping[str, Any], str, Callable[[str], ReservedBytes]]  # options, words, reading -> what is predicted
_Explaining = tuple[Mapping[str, Any], str, Mapping[str, ReservedBytes]]  # the same, predicted
# Our choice. Of 570 readings (328 allocated, 242 of nvidia-smi) that are what is predicted of one of these other runs
# of a published job the run itself was among the first four each time, and of 2 the fourth; a fifth was there in 46.
_MOST_RUNS = 4
# Times the length, and times the micro-batch: our choice of what is taken for another (halves, doubles); a factor
# between them is told where its interval reaches there.
_LONGER = (0.5, 2.0, 4.0)
_IN_RAM = {"saving": "a save", "resuming": "a resume"}  # what comes between steps -> as a person names it
_OLD_ALLOCATOR = "torch's default settings of the allocator"


@attrs.frozen
class OtherRun:
    """A run in whose interval every number lies that was read: what it has otherwise, and its own of one reading.

    Attributes:
        options: As the command line says it: option -> value; none of what is no option.
        words: The same in words.
        expected: What is predicted of the reading, with its interval: the model's error and no more.
    """

    options: Mapping[str, Any]
    words: str
    expected: ReservedBytes

    @property
    def bytes(self) -> int:
        """What is predicted of it."""
        return self.expected.bytes


@attrs.frozen(kw_only=True)
class Observation:
    """One number that a person read.

    Attributes:
        reading: allocated, reserved, nvidia-smi or host.
        bytes: What was read.
        expected: What is predicted of the same number, with its interval.
        others: Runs that would explain this number and every other that was read, the nearest first; none where it
            lies in the interval.
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
        if _reading(reading) in map(_reading, readings):
            raise mistake(f"--observed {reading} is given twice", must="it is one number", code="contradiction")
        readings[reading] = size
    return readings


def _reading(said: str) -> str:
    return NVIDIA.tool if said in _TOOLS else said


def _observed(text: str) -> tuple[str, int]:
    reading, equals, size = text.partition("=")
    if not equals or _reading(reading) not in READINGS:
        raise mistake(
            f"--observed is {text!r}",
            must=f"it must be one of {', '.join(READINGS)}, an equals sign and a size",
            todo="--observed reserved=61.2GiB",
            code="bad-value",
        )
    return reading, _size(f"--observed {reading}", size)


def _size(name: str, given: object) -> int:
    """Bytes of a reading.

    Raises:
        DsgenError: No size, or none that is more than 0.
    """
    if isinstance(given, str):
        try:
            count = int(parse(given, BYTES))
        except ValueError as problem:
            raise mistake(f"{name} is {given!r}", must=str(problem), code="bad-value") from None
    elif isinstance(given, int) and not isinstance(given, bool):
        count = given
    else:
        must = 'it must be whole bytes, or a size such as "61.2GiB"'
        raise mistake(f"{name} is {given!r}", must=must, code="bad-value")
    if count <= 0:
        raise mistake(f"{name} is {given!r}", must="it must be more than 0", code="bad-value")
    return count


def observe(question: Question, readings: Mapping[str, int | str]) -> tuple[Observation, ...]:
    """Each reading of a run beside what is predicted of it: `compare` without the pieces.

    Raises:
        DsgenError: As `compare`.
    """
    return compare(question, readings)[0]


def compare(
    question: Question, readings: Mapping[str, int | str]
) -> tuple[tuple[Observation, ...], tuple[ReadPiece, ...]]:
    """Each reading of a run beside what is predicted of it, and the pieces between them beside their parts.

    Args:
        question: What ran, as a person says it.
        readings: Reading -> bytes of the fullest GPU, of host those of a node, or a size as people write it.

    Raises:
        DsgenError: No such reading, no size, one beyond the card or the node, or torch allocated more than it reserved.
    """
    if not readings:
        return (), ()
    memory = estimate(question.job, question.strategy)
    sizes = _checked(readings, question.job.hardware)
    expected = {reading: _expected(memory, reading) for reading in sizes}
    pieces = differences(memory, sizes, expected)
    plain = [Observation(reading=name, bytes=size, expected=expected[name]) for name, size in sizes.items()]
    if all(one.within for one in plain):
        return tuple(plain), pieces
    near = _explaining(question, memory, sizes)
    seen = (one if one.within else attrs.evolve(one, others=_runs_of(one.reading, near)) for one in plain)
    return tuple(seen), pieces


def _runs_of(reading: str, near: list[_Explaining]) -> tuple[OtherRun, ...]:
    return tuple(OtherRun(options, words, expected[reading]) for options, words, expected in near)


def _checked(readings: Mapping[str, int | str], hardware: Hardware) -> dict[str, int]:
    """The readings in bytes; nvidia-smi shows what torch cannot have too."""
    sizes: dict[str, int] = {}
    for said, given in readings.items():
        reading = _reading(said)
        if reading not in READINGS:
            raise mistake(
                f"observed has {reading!r}", must=f"it must be one of {', '.join(READINGS)}", code="bad-value"
            )
        sizes[reading] = size = _size(f"observed {said}", given)
        there, whose, option = hardware.gpu_memory_bytes, "the GPU", "It is of one GPU. Another card: --hw."
        if reading == HOST:
            there, whose, option = hardware.host_memory_bytes, "a node", "It is of one node. Another: --host-memory."
        if size > there:
            raise mistake(
                f"--observed {said} is {gib(size)} GiB",
                must=f"{whose} has {gib(there)}",
                todo=option,
                code="contradiction",
            )
    told = [(reading, sizes[reading]) for reading in OF_GPU if reading in sizes]
    for (less, small), (more, large) in itertools.pairwise(told):
        if small > large:
            raise mistake(
                f"--observed {less} is {gib(small)} GiB and {more} {gib(large)}",
                must=f"{less} is a part of {more}",
                code="contradiction",
            )
    return sizes


def _expected(memory: MemoryEstimate, reading: str) -> ReservedBytes:
    """What is predicted of a reading. What is allocated has no holes, and lies as far above as it may lie below."""
    if reading == HOST:  # what a process holds beside its tensors is the most that was seen: it may be less
        ram = memory.host
        return ReservedBytes(ram.needed_bytes, int(ram.low_bytes * (1 - ERROR)), int(ram.high_bytes * (1 + ERROR)))
    gpu = memory.gpu
    read = card(gpu)
    if reading == "reserved":
        return read.reserved
    if reading == "nvidia-smi":
        return read.shown
    less, more = (gpu.holds.less, gpu.holds.more) if isinstance(gpu.holds, Reserving) else (0, 0)
    spread = max(0, read.allocated - read.least_allocated - less)
    return ReservedBytes(read.allocated, read.least_allocated, read.allocated + spread + more)


def _explaining(question: Question, memory: MemoryEstimate, sizes: Mapping[str, int]) -> list[_Explaining]:
    """Runs in whose intervals all readings lie, the nearest first: options, words, reading -> what is predicted."""
    near: dict[str, _Explaining] = {}
    for options, words, predict in itertools.chain(_evaluating(question, memory), _other(question)):
        if words in near:
            continue
        expected: dict[str, ReservedBytes] = {}
        for reading in READINGS:  # allocated first: the others are a replay
            if reading in sizes:
                expected[reading] = predict(reading)
                if not expected[reading].low <= sizes[reading] <= expected[reading].high:
                    break
        else:
            near[words] = (options, words, expected)
    ranked = sorted(near.values(), key=lambda run: sum(abs(run[2][name].bytes - size) for name, size in sizes.items()))
    return [*_shared(memory, sizes), *ranked][:_MOST_RUNS]


def _shared(memory: MemoryEstimate, sizes: Mapping[str, int]) -> list[_Explaining]:
    """Another process on the GPU, where nothing but nvidia-smi shows more."""
    shown = "nvidia-smi"
    expected = {reading: _expected(memory, reading) for reading in sizes}
    inside = all(one.low <= sizes[name] <= one.high for name, one in expected.items() if name != shown)
    if not inside or shown not in sizes or sizes[shown] <= expected[shown].high:
        return []
    below = sizes["reserved"] + card(memory.gpu).outside if "reserved" in sizes else expected[shown].bytes
    others = sizes[shown] - below
    words = f"another process on the GPU with {gib(others)} GiB"
    own = f"{others // MIB}MiB"
    known = expected | {shown: ReservedBytes(*(one + others for one in expected[shown]))}
    return [({"gpu_memory_used": own}, words, known)]


def _evaluating(question: Question, memory: MemoryEstimate) -> Iterator[_Other]:
    """The same run with what comes between its steps: an evaluation of the Trainer's default size that takes more of
    the GPU than they, a save or a resume that takes more of the RAM; or with that read when the load was over."""
    trains = max((phase.host for phase in memory.phases if phase.step), key=_sum, default=memory.host.parts)
    if (held := _sum(trains)) < memory.host.peak_bytes:
        over = memory.host.overhead_bytes
        there = memory.host._replace(peak_bytes=held, low_bytes=held, high_bytes=held + over, parts=trains)
        yield {}, "RAM that was read behind the load", partial(_expected, attrs.evolve(memory, host=there))
    for one in later(question.job, question.strategy):
        if one.noun == "evaluation" and one.gpu.peak_bytes > memory.gpu.peak_bytes:
            evaluated = attrs.evolve(memory, gpu=_beside(memory.gpu, one.gpu))
            if evaluated.gpu.verdict is not Verdict.DOES_NOT_FIT:
                yield {}, f"an {one.phase.phase.replace('evaluate', 'evaluation of')}", partial(_expected, evaluated)
        elif one.noun in _IN_RAM and memory.host.high_bytes < one.host.high_bytes <= one.host.limit_bytes:
            yield {}, _IN_RAM[one.noun], partial(_expected, attrs.evolve(memory, host=one.host))


def _sum(parts: Mapping[str, int]) -> int:
    return sum(parts.values())


def _beside(trained: Place, evaluated: Place) -> Place:
    """A GPU that trains and evaluates: the evaluation's tensors; what is reserved grows at least by as much as they."""
    more = evaluated.peak_bytes - trained.peak_bytes
    reserved = trained.reserved
    least = max(reserved.low, evaluated.low_bytes)
    most = max(reserved.high + more, evaluated.tensors_high_bytes)
    likely = max(reserved.bytes, evaluated.peak_bytes)
    return evaluated._replace(holds=ReservedBytes(likely, least, most))


def _other(question: Question) -> Iterator[_Other]:
    for job, strategy, options, words in _runs(question):
        if cannot(job, strategy) is not None:
            continue
        try:
            memory = estimate(job, strategy)
        except DsgenError:
            continue  # adapters that this model does not have
        if memory.gpu.verdict is not Verdict.DOES_NOT_FIT:  # else it would not have run
            yield options, words, partial(_expected, memory)


def _runs(question: Question) -> Iterator[tuple[Job, Strategy, dict[str, Any], str]]:
    """Runs that differ in one thing that people take for another: job, strategy, options and words."""
    job, asked, training = question.job, question.strategy, question.job.training

    def unlike(words: str, **wished: Any) -> tuple[Job, Strategy, dict[str, Any], str]:
        return attrs.evolve(job, training=attrs.evolve(training, **wished)), asked, wished, words

    if maker_of(job.hardware.vendor).grows:
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
