"""Whether a run lives to its end, as words and data: the verdict with what comes between steps, the numbers of a card,
which of them must stay below what, what stays free and why, and what fails first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dsgen.memory import MemoryEstimate, Place, Verdict
from dsgen.memory.card_numbers import card
from dsgen.memory.first_failure import Failure, first_to_fail
from dsgen.report import footprints
from dsgen.report.bars import at_once, card_line, limit_line, replayed, room_line
from dsgen.shapes.units import gib

if TYPE_CHECKING:
    from dsgen.asking.memory_questions import Footprint  # a render asks no such question
    from dsgen.memory.later import Later
    from dsgen.planning.planner import Plan

__all__ = ["between_steps", "card_data", "headroom_data", "headroom_line", "plan_data", "plan_lines", "verdict_line"]

_NO_PROGRAM = "deepspeed"  # a target that is no framework
_IN = {"gpu": "", "host": ", in host RAM", "nvme": ", on NVMe"}


def verdict_line(footprint: Footprint) -> str:
    """The verdict and interval of every place, and what comes between steps and does not surely fit there."""
    from dsgen.memory.later import lacking  # a plan for no program has no such phases

    memory = footprint.memory
    line, words = footprints.verdict_line(memory), list(lacking(footprint.later))
    if not words or memory.verdict is Verdict.DOES_NOT_FIT:
        return line
    lead = "TRAINING " if memory.verdict is Verdict.FITS else ""
    return "; ".join((f"{lead}{line}", *words))


def between_steps(plan: Plan, target: str | None) -> tuple[Later, ...]:
    """What a framework does between the steps of a plan; of a program of one's own nobody knows."""
    if target in (None, _NO_PROGRAM):
        return ()
    from dsgen.frameworks import between_steps as known  # a config that a program reads itself needs no framework

    return known.laters(plan, target)


def plan_lines(memory: MemoryEstimate, laters: Iterable[Later] = ()) -> tuple[str, str]:
    """The lines below the GPU of a plan and a render, which wait for no replay.

    They say what a person reads of the card, which of it must stay below what, what stays free, and what fails first.

    Args:
        memory: Of the plan.
        laters: What the program that trains does between its steps, where that is known.
    """
    gpu = at_once(memory.gpu)
    bounds = limit_line(gpu), headroom_line(memory, laters)
    return card_line(gpu), "; ".join(line for line in bounds if line)


def headroom_line(memory: MemoryEstimate, laters: Iterable[Later] = ()) -> str:
    """What a GPU keeps free and why, or lacks; and the phase that would fail first, wherever that is."""
    gpu, laters = memory.gpu, tuple(laters)
    first = first_to_fail(memory, laters)
    last = _last(memory, first)
    if gpu.verdict is Verdict.UNCERTAIN:
        lacks = gib(gpu.high_bytes - gpu.limit_bytes)
        where = ", where the allocator's holes are largest" if gpu.overhead_bytes else ""  # a CPU has no context
        return f"up to {lacks} GiB too much{where}; {last}"
    if gpu.verdict is Verdict.DOES_NOT_FIT:
        return f"at least {gib(gpu.least_bytes - gpu.limit_bytes)} GiB too much; {last}"
    if first is not None and first.verdict is not Verdict.FITS:
        return f"{gib(gpu.limit_bytes - gpu.high_bytes)} GiB stay free while it trains; {last}"
    return f"{gib(_free(memory, laters))} GiB stay free for what is not counted; {last}"


def _last(memory: MemoryEstimate, first: Failure | None) -> str:
    fails = "fails" if first is not None and first.verdict is Verdict.DOES_NOT_FIT else "would fail"
    return (
        f"{first.words} {fails} first{_IN[first.place]}" if first is not None else f"{memory.gpu.phase} {fails} first"
    )


def _free(memory: MemoryEstimate, laters: tuple[Later, ...]) -> int:
    """What surely stays free of a GPU, between steps too; below 0 what may be lacking."""
    gpu = memory.gpu
    return gpu.limit_bytes - max(gpu.high_bytes, *(one.gpu.high_bytes for one in laters), 0)


def plan_data(memory: MemoryEstimate, laters: Iterable[Later] = ()) -> dict[str, Any]:
    """What `plan_lines` say, under the keys that the JSON of `dsgen memory` has for it."""
    return {"card": card_data(at_once(memory.gpu)), "headroom": headroom_data(memory, laters)}


def card_data(gpu: Place) -> dict[str, Any]:
    """What a person reads of a GPU, never more than it has where what is allocated has room; of a CPU less is read.

    Without a replay (`at_once`) reserved and what the maker's tool shows are intervals, and their one number is null.
    """
    read = card(gpu)
    reserves = read.outside > 0  # by a context; a CPU has none, and no allocator that holds memory back
    one = reserves and replayed(gpu)
    return {
        "words": "; ".join(line for line in (card_line(gpu), room_line(gpu)) if line),
        "runs": read.runs,
        "allocated_bytes": read.allocated,
        "least_allocated_bytes": read.least_allocated,
        "reserved_bytes": read.reserved.bytes if one else None,
        "reserved_low_bytes": read.reserved.low if reserves else None,
        "reserved_high_bytes": read.reserved.high if reserves else None,
        "held_free_bytes": read.held_free if one else None,
        "nvidia_smi_bytes": read.shown.bytes if one else None,
        "nvidia_smi_low_bytes": read.shown.low if reserves else None,
        "nvidia_smi_high_bytes": read.shown.high if reserves else None,
        **footprints.shown_by(gpu),
        "outside_bytes": read.outside,
        "most_allocated_bytes": read.room,
    }


def headroom_data(memory: MemoryEstimate, laters: Iterable[Later] = ()) -> dict[str, Any]:
    """The same as `headroom_line` as plain JSON types, bytes throughout; what is below 0 may be lacking."""
    gpu, laters = memory.gpu, tuple(laters)
    first = first_to_fail(memory, laters)
    return {
        "words": headroom_line(memory, laters),
        "gpu_training_bytes": gpu.limit_bytes - gpu.high_bytes,
        "gpu_bytes": _free(memory, laters),
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
