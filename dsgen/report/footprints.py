"""Memory by place and phase, estimated or simulated: the JSON shape of both, bars of the parts, and the phase table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dsgen.memory import MemoryEstimate, PhaseMemory, Place
from dsgen.report.bars import bar, folded, place_line, up_to
from dsgen.shapes.makers import NVIDIA
from dsgen.shapes.units import gib

__all__ = [
    "beside",
    "data",
    "interval",
    "phase_lines",
    "phase_rows",
    "place_data",
    "place_lines",
    "shown_by",
    "verdict_line",
]

_NAME = 24  # columns of a part's name: "fp32 master weights" and longer ones of the engine
_FEWEST_CELLS = 4  # of a bar of parts that is still one
_MOST_CELLS = 40
_LEAST_SHARE = 0.0005  # of the peak; smaller parts are told together, as JSON has them all
_COLUMN = 6  # of a number in the phase table: 1,024


def data(
    estimate: MemoryEstimate,
    *,
    ends: Sequence[PhaseMemory] = (),
    ranks_per_node: int = 1,
    allocated_bytes: int | None = None,
    limits: bool = True,
) -> dict[str, Any]:
    """An estimate as plain JSON types: verdict, gpu, host, nvme, phases; every size in whole bytes.

    Args:
        estimate: The memory of one GPU, one node's RAM and its drives.
        ends: What is alive at the end of each phase, in the order of `estimate.phases`; none where it is not known.
        ranks_per_node: Ranks that share a node's RAM and drives, all alike.
        allocated_bytes: The GPU's peak with the allocator's rounding, torch's `max_memory_allocated`; where it is not
            known, the peak with cuBLAS's workspaces.
        limits: Whether the limits are known; else they and the verdicts are null.
    """
    gpu = place_data(estimate.gpu, limits)
    gpu["allocated_bytes"] = allocated_bytes or int(estimate.gpu.allocated_bytes)
    shared = [place_data(place, limits) for place in (estimate.host, estimate.nvme)]
    for place in shared:
        place["ranks"] = ranks_per_node
        place["per_rank_bytes"] = place["peak_bytes"] // ranks_per_node
    return {
        "verdict": estimate.verdict.value if limits else None,
        "gpu": gpu,
        "host": shared[0],
        "nvme": shared[1],
        "phases": [
            {
                "phase": phase.phase,
                "step": phase.step,
                "micro_batch": phase.micro_batch,
                "gpu": _moments(phase.gpu, end.gpu if end else None),
                "host": _moments(phase.host, end.host if end else None),
            }
            for phase, end in itertools.zip_longest(estimate.phases, ends)
        ],
    }


def place_data(place: Place, limits: bool = True) -> dict[str, Any]:
    """One place as plain JSON types.

    Args:
        place: The place.
        limits: Whether its limit is known; else it and the verdict are null.
    """
    return {
        "verdict": place.verdict.value if limits else None,
        "peak_bytes": int(place.peak_bytes),
        "needed_bytes": int(place.needed_bytes),
        **_reserved(place),
        "overhead_bytes": int(place.overhead_bytes),
        "low_bytes": int(place.low_bytes),
        "high_bytes": int(place.high_bytes),
        "limit_bytes": int(place.limit_bytes) if limits else None,
        "phase": place.phase,
        "parts": _whole(place.parts),
        "overhead": _whole(place.overhead),
    }


def _reserved(place: Place) -> dict[str, Any]:
    """What torch reserves and the maker's tool shows; null where no allocator is."""
    held, shown = place.reserved, place.shown
    return {
        "reserved_bytes": held.bytes or None,
        "reserved_low_bytes": held.low or None,
        "reserved_high_bytes": held.high or None,
        "nvidia_smi_bytes": shown.bytes if held.bytes else None,
        **shown_by(place),
    }


def _moments(peak: Mapping[str, int], end: Mapping[str, int] | None) -> dict[str, Any]:
    bytes_of: dict[str, Any] = {"peak_bytes": int(sum(peak.values())), "parts": _whole(peak)}
    if end is not None:
        bytes_of |= {"end_bytes": int(sum(end.values())), "end_parts": _whole(end)}
    return bytes_of


def _whole(parts: Mapping[str, int]) -> dict[str, int]:
    return {name: int(size) for name, size in parts.items()}


def verdict_line(estimate: MemoryEstimate) -> str:
    """The verdict and the whole interval of every place: "FITS: GPU 7.5 to 8.4 of 39.4 GiB, host ... a node"."""
    said = [f"GPU {interval(estimate.gpu)}", f"host {interval(estimate.host)} a node"]
    if estimate.nvme.peak_bytes:
        said.append(f"NVMe {interval(estimate.nvme)} a node")
    return f"{estimate.verdict.value.upper()}: {', '.join(said)}"


def interval(place: Place) -> str:
    """The whole interval of a place beside its limit, with what no tensor holds: "7.5 to 8.4 of 39.4 GiB"."""
    low, high = gib(place.least_bytes), gib(place.high_bytes)
    return f"{f'{low} to {high}' if low != high else low} of {gib(place.limit_bytes)} GiB"


def place_lines(label: str, place: Place, width: int, limits: bool = True) -> list[str]:
    """One place: the line with its bar and verdict, then a bar for every part at its peak and of its overhead.

    Args:
        label: "GPU", "host" or "NVMe".
        place: The place.
        width: Columns of the terminal.
        limits: Whether its limit is known; else bars are shares of the most that it can take.
    """
    whole = place.limit_bytes if limits else max(place.high_bytes, place.peak_bytes)
    cells = max(_FEWEST_CELLS, min(_MOST_CELLS, width - _NAME - 21))
    if limits:
        head = f"{place_line(label, place)}{f'; peak in {place.phase}' if place.phase else ''}"
    else:
        head = (
            f"{label:<5} {gib(place.peak_bytes)} GiB{up_to(place)}{f'; peak in {place.phase}' if place.phase else ''}"
        )
    lines = folded(head, width)
    shown = sorted(((name, size) for name, size in place.parts.items() if size), key=lambda item: -item[1])
    small = [item for item in shown if item[1] < _LEAST_SHARE * place.peak_bytes and gib(item[1]) == gib(0)]
    if len(small) > 1:
        shown = [item for item in shown if item not in small]
        shown.append((f"{len(small)} small kinds", sum(size for _, size in small)))
    rows = [*shown, *((name, size) for name, size in place.overhead.items() if size)]
    return lines + [
        f"      {_cut(name):<{_NAME}} {gib(size):>6} GiB  {bar(size / whole if whole else 0, cells)}".rstrip()
        for name, size in rows
    ]


def _cut(name: str) -> str:
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def beside(estimate: MemoryEstimate) -> list[list[str]]:
    """Rows that make the table's numbers comparable to a card's: what no tensor holds, and what there is."""
    gpu, host = estimate.gpu, estimate.host
    return [
        ["besides, no tensor", gib(gpu.overhead_bytes), gib(host.overhead_bytes)],
        ["there is", gib(gpu.limit_bytes), gib(host.limit_bytes)],
    ]


def phase_lines(
    phases: Sequence[PhaseMemory],
    ends: Sequence[PhaseMemory] = (),
    indent: int = 0,
    beside: Sequence[list[str]] = (),
    disks: Mapping[str, int] = MappingProxyType({}),
) -> list[str]:
    """`phase_rows` as lines of text."""
    (_, *heads), *rows = phase_rows(phases, ends, beside, disks)
    column = max(len(row[0]) for row in (*rows, ["GiB in phase"]))
    widths = [max(len(head), _COLUMN) for head in heads]
    return [
        (
            " " * indent
            + " ".join([f"{name:<{column}}", *(f"{cell:>{width}}" for cell, width in zip(told, widths, strict=True))])
        ).rstrip()
        for name, *told in (["GiB in phase", *heads], *rows)
    ]


def phase_rows(
    phases: Sequence[PhaseMemory],
    ends: Sequence[PhaseMemory] = (),
    beside: Sequence[list[str]] = (),
    disks: Mapping[str, int] = MappingProxyType({}),
) -> list[list[str]]:
    """The phases as a table, heads first: GiB at the peak, and at the end where known, of one GPU and a node's RAM.

    Micro-batches of a step that differ in no shown number are one row; rows of what lies beside the tensors come last.
    Where a phase writes files, a last column has their bytes on disk.
    """
    heads = ["phase", "GPU peak", "end", "host peak", "end"] if ends else ["phase", "GPU peak", "host peak"]
    rows = [heads, *([name, *numbers] for name, numbers in _rows(phases, ends)), *beside]
    if not disks:
        return rows
    names = [row[0].rpartition(": ")[2] for row in rows]  # without the step
    filled = [gib(disks[name]) if name in disks else "" for name in names]
    return [[*row, "disk" if row is heads else size] for row, size in zip(rows, filled, strict=True)]


def _rows(phases: Sequence[PhaseMemory], ends: Sequence[PhaseMemory]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Name and numbers of every row; runs of alike micro-batches are joined at the place of their first."""
    rows: list[tuple[PhaseMemory, int, tuple[str, ...]]] = []  # first phase, last micro-batch, numbers
    for phase, end in itertools.zip_longest(phases, ends):
        numbers: tuple[str, ...] = (gib(phase.gpu_bytes), gib(phase.host_bytes))
        if end is not None:
            numbers = (gib(phase.gpu_bytes), gib(end.gpu_bytes), gib(phase.host_bytes), gib(end.host_bytes))
        elif ends:  # it leaves nothing
            numbers = (numbers[0], "", numbers[1], "")
        for place, (first, last, told) in enumerate(rows):
            same = (first.phase, first.step, told) == (phase.phase, phase.step, numbers)
            if same and last + 1 == phase.micro_batch and phase.micro_batch > 1:
                rows[place] = (first, phase.micro_batch, told)
                break
        else:
            rows.append((phase, phase.micro_batch, numbers))
    several = any(phase.micro_batch > 1 for phase in phases)
    for first, last, told in rows:
        yield _named(first, last, several), told


def _named(phase: PhaseMemory, last: int, several: bool) -> str:
    step = f"step {phase.step}: " if phase.step else ""
    name = "optimizer step" if step and phase.phase == "step" else phase.phase
    if not several or not phase.micro_batch:
        return f"{step}{name}"
    count = f"{phase.micro_batch}" if last == phase.micro_batch else f"{phase.micro_batch} to {last}"
    return f"{step}{name} {count}"


def shown_by(place: Place) -> dict[str, str]:
    """The tool of another maker whose reading stands as nvidia_smi_bytes."""
    return {} if place.maker == NVIDIA else {"shown_by": place.maker.tool}
