"""Bars and numbers as every report shows them."""

from __future__ import annotations

from dsgen.memory import Place
from dsgen.units import gib

__all__ = ["FULL", "bar", "count", "place_line"]

FULL, EMPTY = "█", "░"
WIDTH = 30  # cells of a memory bar, fewer beside long numbers
NARROW = 80  # columns that a line keeps to


def bar(share: float, width: int = WIDTH) -> str:
    """A bar of a fixed width; what is over 1 fills it."""
    filled = max(0, min(width, round(share * width)))
    return FULL * filled + EMPTY * (width - filled)


def place_line(label: str, place: Place) -> str:
    """One place's memory against its limit: numbers, bar, verdict and interval."""
    share = place.peak_bytes / place.limit_bytes if place.limit_bytes else 0.0
    numbers = f"{gib(place.peak_bytes)} of {gib(place.limit_bytes)} GiB"
    interval = ""
    if gib(place.low_bytes) != gib(place.high_bytes):
        interval = f" ({gib(place.low_bytes)} to {gib(place.high_bytes)})"
    said = f"{place.verdict.value}{interval}"
    cells = min(WIDTH, NARROW - len(f"{label:<5} {numbers:<20} ") - len(f" {said}"))
    return f"{label:<5} {numbers:<20} {bar(share, cells)} {said}"


def count(value: float) -> str:
    """A speed with three digits and thousands separators: 2,450."""
    digits = max(0, len(str(int(value))) - 3)
    return f"{round(value, -digits):,.0f}" if value >= 10 else f"{value:.2g}"
