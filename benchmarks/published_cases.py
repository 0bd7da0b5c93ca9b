"""What became of each published record: compared by its peak, by its verdict, or left out with a reason."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
from published_apart import why_apart  # benchmarks/, beside this script
from published_questions import question_of
from published_reasons import reason
from published_sources import GIB, Reading, Source, measured_bytes, source_of

from dsgen.asking.memory_questions import Question
from dsgen.memory import MemoryEstimate, Verdict, estimate
from dsgen.memory.estimates import HIGH, LOW
from dsgen.memory.reserved import ReservedBytes
from dsgen.shapes.errors import DsgenError

__all__ = [
    "LEFT_OUT",
    "PEAK",
    "REFUSED",
    "VERDICT",
    "Case",
    "Peak",
    "case_of",
    "cases",
    "gathered",
    "gathered_in",
    "ours",
    "records",
]

DATA = Path(__file__).resolve().parent / "data"
RECORDS = (DATA / "published.json", DATA / "published_2.json")
GATHERED = tuple(DATA / f"published_{number}.json" for number in (3, 4, 5, 6, 7, 8, 9, 10, 11))  # a round each

PEAK, VERDICT, LEFT_OUT = "peak", "verdict", "left out"
REFUSED = "dsgen refuses the question"


@attrs.frozen(kw_only=True)
class Peak:
    """One number of a run's memory, and what dsgen says of the same: bytes, and the interval beside it."""

    reading: Reading
    measured: int
    ours: int
    low: int
    high: int

    @property
    def error(self) -> float:
        """The signed error: above 0 where dsgen says more than was measured."""
        return self.ours / self.measured - 1

    @property
    def within(self) -> bool:
        """Whether the measured number lies in the interval."""
        return self.low <= self.measured <= self.high


@attrs.frozen(kw_only=True)
class Case:
    """One record, and what became of it.

    Attributes:
        name: Id of the record.
        title: Model and how it ran, in words.
        source: Prefix of its source.
        grade: A, B or C, as the records grade themselves: C rests on guesses.
        system: What it ran on: deepspeed, fsdp or neither; and what was trained: full, lora or qlora.
        kind: Compared by its peak, by its verdict, or left out.
        reason: Why it was left out; else empty.
        apart: What its program held otherwise; empty where nothing is known to differ.
        peaks: The numbers of its memory; none where it is not compared by one.
        fits: Whether it ran.
        verdict: What dsgen says of the GPU; None where it was left out.
    """

    name: str
    title: str
    source: str
    grade: str
    kind: str
    system: tuple[str, str] = ("", "")
    reason: str = ""
    apart: str = ""
    peaks: tuple[Peak, ...] = ()
    fits: bool = False
    verdict: Verdict | None = None

    @property
    def error(self) -> float:
        """The signed error of its first number."""
        return self.peaks[0].error

    @property
    def right(self) -> bool | None:
        """Whether the verdict is right; None where dsgen leaves it open."""
        return None if self.verdict is Verdict.UNCERTAIN else (self.verdict is Verdict.FITS) == self.fits


@functools.cache
def records() -> tuple[Mapping[str, Any], ...]:
    """Every record of both files, in their order."""
    return tuple(record for path in RECORDS for record in json.loads(path.read_text(encoding="utf-8")))


@functools.cache
def gathered() -> tuple[Mapping[str, Any], ...]:
    """What was gathered when the models were done: nothing was fitted or chosen on it (unseen.py)."""
    return tuple(record for path in GATHERED for record in json.loads(path.read_text(encoding="utf-8")))


@functools.cache
def gathered_in(again: int) -> frozenset[str]:
    """Ids of a round of what was gathered: 1 to 9."""
    return frozenset(record["id"] for record in json.loads(GATHERED[again - 1].read_text(encoding="utf-8")))


@functools.cache
def cases() -> tuple[Case, ...]:
    """Every record with what became of it, in the order of the files."""
    return tuple(case_of(record) for record in records())


def case_of(record: Mapping[str, Any]) -> Case:
    """What becomes of one record."""
    source, why = source_of(record), reason(record)
    case = Case(
        name=record["id"],
        title=record["model"]["name"],
        source=source.prefix,
        grade=record["grade"],
        kind=LEFT_OUT,
        reason=why or "",
    )
    if why is not None:
        return case
    try:
        question = question_of(record)
        found = estimate(question.job, question.strategy)
    except DsgenError as refusal:
        return attrs.evolve(case, reason=f"{REFUSED}: {str(refusal).splitlines()[0]}")
    peaks = tuple(_peaks(record, source, found))
    return attrs.evolve(
        case,
        title=_title(record, question),
        kind=PEAK if peaks else VERDICT,
        system=(record["system"], question.job.training.method),
        apart=why_apart(record) or "",
        peaks=peaks,
        fits=bool(record["measured"]["fits"]),
        verdict=found.gpu.verdict,
    )


def _peaks(record: Mapping[str, Any], source: Source, found: MemoryEstimate) -> Iterator[Peak]:
    """The numbers of a record beside ours."""
    measured, card = measured_bytes(record), record["measured"].get("nvidia_smi_gib")
    if measured is not None:
        yield _peak(source.reading, measured, found, source.whole)
    if card is not None:
        yield _peak(Reading.DRIVER, round(card * GIB), found)


def _peak(reading: Reading, measured: int, found: MemoryEstimate, whole: bool = False) -> Peak:
    expected, low, high = ours(found, reading, whole)
    return Peak(reading=reading, measured=measured, ours=expected, low=low, high=high)


def ours(found: MemoryEstimate, reading: Reading, whole: bool = False) -> ReservedBytes:
    """The bytes of an estimate that a reading of a real run stands for, and their interval.

    Of the steps alone, unless `whole`: how a program loads a model, above all one in 4 bits, is its own affair.
    """
    gpu = found.gpu
    steps = max((phase.gpu_bytes for phase in found.phases if phase.step or whole), default=gpu.peak_bytes)
    workspace = gpu.workspace_bytes
    if reading is Reading.ALLOCATED:  # what is reserved takes a replay
        return ReservedBytes(steps + workspace, int(LOW * steps), int(HIGH * steps) + workspace)
    held = ReservedBytes(*((one - workspace) * steps // gpu.peak_bytes for one in gpu.reserved))
    gpu = gpu._replace(peak_bytes=steps, holds=held)
    if reading is Reading.DRIVER:
        return gpu.shown
    if reading is Reading.UNSTATED:  # it may be any of the three
        return ReservedBytes(gpu.reserved.bytes, int(LOW * steps), max(gpu.reserved.high, gpu.shown.high))
    return gpu.reserved


def _title(record: Mapping[str, Any], question: Question) -> str:
    job, training = question.job, question.job.training
    words = [f"{record['model']['name']}, {question.strategy}, {job.seq_len} tokens"]
    if training.method != "full":
        words.append(f"{training.method} {training.lora_rank}")
    if training.chunked_loss:
        words.append("chunked loss")
    words += [training.attention, f"{job.world} GPUs" if job.world > 1 else "1 GPU"]
    return ", ".join(words)
