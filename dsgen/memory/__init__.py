"""How much memory a strategy takes, where and when: pure arithmetic with named parts that add up."""

from __future__ import annotations

from dsgen.memory.asked import resident_bytes
from dsgen.memory.doubted import doubted
from dsgen.memory.estimates import (
    MemoryEstimate,
    PhaseMemory,
    Place,
    Room,
    Verdict,
    estimate,
    expandable,
    room,
    verdict,
)
from dsgen.memory.fits import UNITS_OF, Fits, fits
from dsgen.memory.limits import gpu_limit, host_limit
from dsgen.memory.moments import Moment
from dsgen.memory.parts import Parts, parts, sequence_bytes
from dsgen.memory.widened import widened

__all__ = [
    "UNITS_OF",
    "Fits",
    "MemoryEstimate",
    "Moment",
    "Parts",
    "PhaseMemory",
    "Place",
    "Room",
    "Verdict",
    "doubted",
    "estimate",
    "expandable",
    "fits",
    "gpu_limit",
    "host_limit",
    "parts",
    "resident_bytes",
    "room",
    "sequence_bytes",
    "verdict",
    "widened",
]
