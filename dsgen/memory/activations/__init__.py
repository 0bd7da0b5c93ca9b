"""Activations: what forward and backward hold on one GPU beside weights, states and buffers, moment by moment."""

from __future__ import annotations

from dsgen.families.tape.moments import (
    AGAIN,
    APART,
    AT,
    BACKWARD,
    FETCHED,
    FORWARD,
    START,
    Activity,
    Position,
    Size,
)
from dsgen.memory.activations.executions import execution
from dsgen.memory.activations.inference import evaluates, inference
from dsgen.memory.activations.offloaded import Offloaded
from dsgen.memory.activations.whole import Activations, BlockRun, Recorded, activations, recorded

__all__ = [
    "AGAIN",
    "APART",
    "AT",
    "BACKWARD",
    "FETCHED",
    "FORWARD",
    "START",
    "Activations",
    "Activity",
    "BlockRun",
    "Offloaded",
    "Position",
    "Recorded",
    "Size",
    "activations",
    "evaluates",
    "execution",
    "inference",
    "recorded",
]
