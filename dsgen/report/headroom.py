"""Whether a run lives to its end, as words and data: the verdict with what comes between steps, what stays free, and
what fails first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dsgen.memory import MemoryEstimate, Verdict
from dsgen.memory.card_numbers import card
from dsgen.memory.first_failure import Failure, first_to_fail
from dsgen.memory.later import Later, lacking
from dsgen.report import footprints
from dsgen.report.bars import at_once
from dsgen.shapes.units import gib

if TYPE_CHECKING:
    from dsgen.asking.memory_questions import Footprint  # a render asks no such question

__all__ = ["headroom_data", "headroom_line", "training_line", "verdict_line"]

_EVALUATES = "evaluate"
_IN = {"gpu": "", "host": ", in host RAM", "nvme": ", on NVMe"}


def verdict_line(footprint: Footprint) -> str:
    """The verdict and interval of every place, and what comes between steps and does not surely fit there."""
    memory = footprint.memory
    line, words = footprints.verdict_line(memory), list(lacking(footprint.later))
    if not words or memory.verdict is Verdict.DOES_NOT_FIT:
        return line
    lead = "TRAINING " if memory.verdict is Verdict.FITS else ""
    return "; ".join((f"{lead}{line}", *words))


def headroom_line(footprint: Footprint) -> str:
    """What a GPU keeps free and why, or lacks; and the phase that would fail first, wherever that is."""
    gpu, first = footprint.memory.gpu, footprint.first_to_fail
    last = _last(footprint.memory, first)
    if gpu.verdict is Verdict.UNCERTAIN:
        lacks = gib(gpu.high_bytes - gpu.limit_bytes)
        where = ", where the allocator's holes are largest" if gpu.overhead_bytes else ""  # a CPU has no context
        return f"up to {lacks} GiB too much{where}; {last}"
    if gpu.verdict is Verdict.DOES_NOT_FIT:
        return f"at least {gib(gpu.least_bytes - gpu.limit_bytes)} GiB too much; {last}"
    if first is not None and first.verdict is not Verdict.FITS:
        return f"{gib(gpu.limit_bytes - gpu.high_bytes)} GiB stay free while it trains; {last}"
    return f"{gib(_free(footprint))} GiB stay free for what is not counted; {last}"


def training_line(memory: MemoryEstimate, laters: Iterable[Later] = ()) -> str:
    """What torch has of a GPU, what stays free while a plan trains, and what would fail first; empty on a CPU.

    Args:
        memory: Of the plan.
        laters: What the program that trains does between its steps, where that is known.
    """
    gpu = memory.gpu
    read = card(at_once(gpu))
    if not read.outside:
        return ""
    laters = tuple(laters)
    first = first_to_fail(memory, laters)
    between = first is not None and first.verdict is not Verdict.FITS
    most = gpu.high_bytes if between else max(gpu.high_bytes, *(one.gpu.high_bytes for one in laters), 0)
    spare = gpu.limit_bytes - most
    left = f"{gib(spare)} stay free" if spare >= 0 else f"up to {gib(-spare)} may be lacking"
    if first is not None and first.phase.startswith(_EVALUATES):
        first = first._replace(phase="evaluation")
    return f"torch must stay below {gib(read.room)} GiB, {left}; {_last(memory, first and first._replace(step=0))}"


def _last(memory: MemoryEstimate, first: Failure | None) -> str:
    fails = "fails" if first is not None and first.verdict is Verdict.DOES_NOT_FIT else "would fail"
    return (
        f"{first.words} {fails} first{_IN[first.place]}" if first is not None else f"{memory.gpu.phase} {fails} first"
    )


def _free(footprint: Footprint) -> int:
    """What surely stays free of a GPU, between steps too; below 0 what may be lacking."""
    gpu = footprint.memory.gpu
    return gpu.limit_bytes - max(gpu.high_bytes, *(one.gpu.high_bytes for one in footprint.later))


def headroom_data(footprint: Footprint) -> dict[str, Any]:
    """The same as plain JSON types, bytes throughout; what is below 0 may be lacking."""
    gpu, first = footprint.memory.gpu, footprint.first_to_fail
    return {
        "gpu_training_bytes": gpu.limit_bytes - gpu.high_bytes,
        "gpu_bytes": _free(footprint),
        "first_to_fail": None
        if first is None
        else {
            "phase": first.phase,
            "step": first.step,
            "place": first.place,
            "verdict": first.verdict.value,
            "needed_bytes": first.needed_bytes,
            "high_bytes": first.high_bytes,
            "limit_bytes": first.limit_bytes,
        },
    }
