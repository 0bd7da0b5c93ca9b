"""Time of the optimizer's update where it runs on the GPU."""

from __future__ import annotations

from dsgen.jobs.job import Job
from dsgen.kernels import Rates, traffic_seconds
from dsgen.memory.states import widths
from dsgen.strategies.strategies import Strategy

__all__ = ["adam_bytes", "update_seconds"]

WEIGHT_MOVES, MOMENT_MOVES = 3, 4  # of an element that Adam updates: it reads a gradient, and reads and writes the rest
# What a GPU's step moves of an element besides (stage_1_and_2.py, step): the 16-bit gradient is read for its norm and
# for its cast, the fp32 one written, scaled in place; the 16-bit copy of the weight is written.
STEP_BYTES = 2 + 2 + 4 + 8 + 2


def adam_bytes(job: Job, strategy: Strategy) -> int:
    """Bytes that Adam moves for an element: 28, or fewer where what it holds is in 16 bits."""
    weight, moment = widths(job, strategy)
    return WEIGHT_MOVES * weight + MOMENT_MOVES * moment


def update_seconds(job: Job, strategy: Strategy, rates: Rates, elements: int) -> float:
    """The GPU's step over this rank's elements: norm, casts, the fused optimizer, and the 16-bit copy."""
    return traffic_seconds(rates, elements * (adam_bytes(job, strategy) + STEP_BYTES), "adam")
