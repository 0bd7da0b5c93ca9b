"""What became of each published record: compared by its peak, by its verdict, or left out with a reason."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from published_questions import question_of  # benchmarks/, beside this script
from published_reasons import reason
from published_sources import Reading, measured_bytes, source_of

from dsgen.asking.memory_questions import Question
from dsgen.memory import MemoryEstimate, Verdict, estimate
from dsgen.shapes.errors import DsgenError

__all__ = ["LEFT_OUT", "PEAK", "REFUSED", "VERDICT", "Case", "case_of", "cases", "ours", "records"]

RECORDS = Path(__file__).resolve().parent / "data" / "published.json"

PEAK, VERDICT, LEFT_OUT = "peak", "verdict", "left out"
REFUSED = "dsgen refuses the question"
_WORKSPACE = "cuBLAS workspace"  # torch takes it from its own allocator


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
        measured: Bytes of its peak; 0 where it is not compared by one.
        ours: Bytes that stand for the same; 0 likewise.
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
    measured: int = 0
    ours: int = 0
    fits: bool = False
    verdict: Verdict | None = None

    @property
    def error(self) -> float:
        """The signed error of the peak: above 0 where dsgen says more than was measured."""
        return self.ours / self.measured - 1

    @property
    def right(self) -> bool | None:
        """Whether the verdict is right; None where dsgen leaves it open."""
        return None if self.verdict is Verdict.UNCERTAIN else (self.verdict is Verdict.FITS) == self.fits


@functools.cache
def records() -> tuple[Mapping[str, Any], ...]:
    """Every record, in the order of the file."""
    return tuple(json.loads(RECORDS.read_text(encoding="utf-8")))


@functools.cache
def cases() -> tuple[Case, ...]:
    """Every record with what became of it, in the order of the file."""
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
    measured = measured_bytes(record)
    return attrs.evolve(
        case,
        title=_title(record, question),
        kind=VERDICT if measured is None else PEAK,
        system=(record["system"], question.job.training.method),
        measured=measured or 0,
        ours=0 if measured is None else ours(found, source.reading),
        fits=bool(record["measured"]["fits"]),
        verdict=found.gpu.verdict,
    )


def ours(found: MemoryEstimate, reading: Reading) -> int:
    """The bytes of an estimate that a reading of a real run stands for.

    Of the steps alone: how a program loads a model, above all one in 4 bits, is its own affair.
    """
    gpu = found.gpu
    steps = max((phase.gpu_bytes for phase in found.phases if phase.step), default=gpu.peak_bytes)
    gpu = gpu._replace(peak_bytes=steps, reserved_bytes=gpu.reserved_bytes * steps // gpu.peak_bytes)
    workspace = gpu.overhead.get(_WORKSPACE, 0)
    if reading is Reading.ALLOCATED:
        return gpu.peak_bytes + workspace
    if reading is Reading.DRIVER:
        return gpu.reserved_bytes + gpu.overhead_bytes
    return gpu.reserved_bytes + workspace


def _title(record: Mapping[str, Any], question: Question) -> str:
    job, training = question.job, question.job.training
    words = [f"{record['model']['name']}, {question.strategy}, {job.seq_len} tokens"]
    if training.method != "full":
        words.append(f"{training.method} {training.lora_rank}")
    if training.chunked_loss:
        words.append("chunked loss")
    words += [training.attention, f"{job.world} GPUs" if job.world > 1 else "1 GPU"]
    return ", ".join(words)
