"""Bars and numbers as every report shows them."""

from __future__ import annotations

from dsgen.memory import Place, Verdict
from dsgen.memory.reserved import Reserving
from dsgen.shapes.units import gib

__all__ = ["FULL", "at_once", "bar", "card_line", "folded", "place_line", "rounded"]

FULL, EMPTY = "█", "░"
WIDTH = 30  # cells of a memory bar, fewer beside long numbers
NARROW = 80  # columns that a line keeps to


def bar(share: float, width: int = WIDTH) -> str:
    """A bar of a fixed width; what is over 1 fills it."""
    filled = max(0, min(width, round(share * width)))
    return FULL * filled + EMPTY * (width - filled)


def place_line(label: str, place: Place) -> str:
    """One place's memory against its limit, with what no tensor holds: numbers, bar, verdict and interval."""
    needed, low = place.needed_bytes, place.least_bytes
    share = needed / place.limit_bytes if place.limit_bytes else 0.0
    numbers = f"{gib(needed)} of {gib(place.limit_bytes)} GiB"
    interval = f" ({gib(low)} to {gib(place.high_bytes)})" if gib(low) != gib(place.high_bytes) else ""
    said = f"{place.verdict.value}{interval}"
    cells = min(WIDTH, NARROW - len(f"{label:<5} {numbers:<20} ") - len(f" {said}"))
    return f"{label:<5} {numbers:<20} {bar(share, cells)} {said}"


def card_line(gpu: Place) -> str:
    """What a person reads of a GPU: allocated and reserved as torch says, and what nvidia-smi shows, in GiB."""
    if gpu.verdict is Verdict.DOES_NOT_FIT:
        return f"torch would have to allocate {gib(gpu.allocated_bytes)} GiB"
    held, shown = gpu.reserved, gpu.shown
    likely, low, high = map(min, held, shown)  # never more than the card shows
    reserved = f"{gib(likely)} ({gib(low)} to {gib(high)})"
    return f"torch allocates {gib(gpu.allocated_bytes)}, reserves {reserved} GiB; nvidia-smi {gib(shown.bytes)}"


def at_once(gpu: Place) -> Place:
    """A GPU whose reserved bytes are told from causes: a replay takes longer than a render; `dsgen memory` has it."""
    return gpu._replace(holds=gpu.holds._replace(replays=False)) if isinstance(gpu.holds, Reserving) else gpu


def folded(line: str, width: int) -> list[str]:
    """A place's line in two where it is too long: the peak's phase goes below."""
    head, semicolon, tail = line.rpartition("; ")
    if len(line) <= width or not semicolon:
        return [line]
    return [head, f"      {tail}"]


def rounded(value: float) -> str:
    """A speed with three digits and thousands separators: 2,450."""
    digits = max(0, len(str(int(value))) - 3)
    return f"{round(value, -digits):,.0f}" if value >= 10 else f"{value:.2g}"
