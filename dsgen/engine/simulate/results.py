"""The result of a simulated run as plain JSON values: phases, peaks and their parts, collectives, a timeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsgen.allocators import allocator_settings
from dsgen.allocators.caching import Allocator, Reserved
from dsgen.allocators.expandable import Expandable
from dsgen.allocators.pinned import PinnedMemory
from dsgen.engine.simulate import steady
from dsgen.engine.simulate.ledger import HOST, Ledger, Occupancy, Phase

__all__ = ["allocated_and_reserved", "collectives", "describe"]

_NAMES = ("gpu", "host")  # in the order of GPU, HOST
_LARGEST = 40  # groups of equal tensors that a result lists for each place
_SAMPLES = 400  # of the timeline, for each place


def describe(ledger: Ledger, capacity_bytes: int, alloc_conf: str = "", workspace_bytes: int = 0) -> dict[str, Any]:
    """Phases, peaks and timelines of a run.

    Args:
        ledger: The record of the run.
        capacity_bytes: The GPU's memory: the allocator gives back what it keeps in reserve before it asks for more.
        alloc_conf: The value of PYTORCH_CUDA_ALLOC_CONF.
        workspace_bytes: Of one workspace of cuBLAS, which lies among the tensors and is in no number here.

    Returns:
        `phases`: phase, step, micro_batch and for gpu and host peak_bytes, peak_parts, end_bytes, end_parts;
        `peak`: for gpu and host bytes, phase (its place in `phases`), parts, largest; for the GPU also what torch's
        allocator would report; for the host the page-locked bytes;
        `timeline`: for gpu and host samples of the parts over the run.
        Parts add up to the bytes beside them, exactly.
    """
    phases = ledger.phases()
    peaks: dict[str, Any] = {}
    for place, name in enumerate(_NAMES):
        tops = [phase.peak[place] for phase in phases]
        index = max(range(len(tops)), key=lambda at: tops[at].total)
        peaks[name] = {
            "bytes": tops[index].total,
            "phase": index,
            "parts": tops[index].named(),
            "largest": ledger.largest(place, tops[index].event, _LARGEST),
        }
        if place == HOST:
            peaks[name]["pinned"] = _pinned(
                ledger, tops[index], allocator_settings.parse(alloc_conf).pinned_cached_bytes
            )
    peaks["gpu"]["allocator"] = allocated_and_reserved(ledger, capacity_bytes, alloc_conf, workspace_bytes)
    return {
        "phases": [_phase(phase) for phase in phases],
        "peak": peaks,
        "timeline": {name: ledger.timeline(place, _SAMPLES) for place, name in enumerate(_NAMES)},
    }


def _phase(phase: Phase) -> dict[str, Any]:
    told: dict[str, Any] = {"phase": phase.name, "step": phase.step, "micro_batch": phase.micro_batch}
    for place, name in enumerate(_NAMES):
        told[name] = {
            "peak_bytes": phase.peak[place].total,
            "peak_parts": phase.peak[place].named(),
            "end_bytes": phase.end[place].total,
            "end_parts": phase.end[place].named(),
        }
    return told


def allocated_and_reserved(
    ledger: Ledger, capacity_bytes: int, alloc_conf: str = "", workspace_bytes: int = 0
) -> dict[str, Any]:
    """What torch's allocator would have said: on this GPU, and the least GPU on which the run goes through.

    `reserved_peak_bytes`, `out_of_memory`, `least_bytes` ... are with the settings as they are, those that begin with
    `expandable_` with expandable segments. `growing_steps` is how many steps after the simulated ones reserved more.
    `shortage` is what cannot be had first where memory runs out, or on the largest smaller GPU on which it does.
    Workspaces of cuBLAS are in none of them, as the room for them is not in the capacity.
    """
    settings, run = allocator_settings.parse(alloc_conf), steady.StepRequests(ledger, workspace_bytes)

    def default(capacity: int | None) -> Allocator:
        return Allocator(capacity, settings)

    def expandable(capacity: int | None) -> Allocator:
        return Expandable(capacity, settings)

    def played(make: Callable[[int | None], Allocator]) -> tuple[Reserved, int, int, int]:
        said, growing = steady.played(run, make(capacity_bytes))
        bounded = said.out_of_memory or said.released_segments > 0  # else a larger GPU would see the same
        known = {capacity_bytes: said.out_of_memory}
        least = steady.least_card(run, make, known, None if bounded else said)
        short = [size for size, ran_out in known.items() if ran_out]
        return (
            said,
            growing,
            least,
            max(short, default=max(0, said.allocated_peak_bytes - 1) // steady.PAGE * steady.PAGE),
        )

    expanded = played(expandable)
    as_set = expanded if settings.expandable else played(default)
    told: dict[str, Any] = {}
    for prefix, (said, _, least_bytes, _) in (("expandable_", expanded), ("", as_set)):
        told |= {
            f"{prefix}reserved_peak_bytes": said.reserved_peak_bytes,
            f"{prefix}out_of_memory": said.out_of_memory,
            f"{prefix}least_bytes": least_bytes,
        }
    short = capacity_bytes if as_set[0].out_of_memory else as_set[3]
    return {
        **told,
        "shortage": _shortage(ledger, run, (expandable if settings.expandable else default)(short)),
        "allocated_peak_bytes": as_set[0].allocated_peak_bytes,
        "released_segments": as_set[0].released_segments,
        "growing_steps": as_set[1],
    }


def _shortage(ledger: Ledger, run: steady.StepRequests, allocator: Allocator) -> dict[str, Any] | None:
    """Phase and storage of the first request that is not served; None where nothing is asked for."""
    first = steady.first_unserved(run, allocator)
    if first is None or not first.handle:
        return None
    number, event = first.handle - 1, ledger.events.index(first.handle)
    phase, step, micro_batch, _ = next(mark for mark in ledger.marks if mark[3] > event)
    operator, site, *_ = ledger.descriptions[ledger.notes[number]]
    return {
        "capacity_bytes": allocator.capacity,
        "phase": phase,
        "step": step,
        "micro_batch": micro_batch,
        "later": first.later,
        "bytes": ledger.sizes[number],
        "kind": ledger.kind(number),
        "site": site or operator.removeprefix("aten.").partition(".")[0],
    }


def _pinned(ledger: Ledger, top: Occupancy, cached_bytes: int | None) -> dict[str, int]:
    """Page-locked bytes at the host's peak: asked for, and what torch's host allocator makes of them at most.

    Other tensors and the second number together are the most that the process holds at any moment.
    """
    asked = sum(ledger.sizes[number] for number in ledger.alive(HOST, top.event) if number in ledger.pinned)
    memory, others, most = PinnedMemory(cached_bytes), 0, 0
    for number, born in ledger.moves(HOST):
        size = ledger.sizes[number]
        if number not in ledger.pinned:
            others += size if born else -size
        elif born:
            memory.allocate(size)
        else:
            memory.free(size)
        most = max(most, others + memory.reserved_bytes)
    return {"bytes": asked, "reserved_bytes": asked + most - top.total}


def collectives(counts: dict[tuple[int, str, str, int, int], int]) -> list[dict[str, Any]]:
    """Every kind of collective that a rank issues in a phase of a step: bytes of its largest operand, how often."""
    return [
        {"step": step, "phase": phase, "kind": kind, "ranks": ranks, "bytes": size, "count": count}
        for (step, phase, kind, ranks, size), count in sorted(counts.items())
    ]
