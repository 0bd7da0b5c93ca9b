"""How long one optimizer step takes: compute, communication and offload, with what overlaps; pure arithmetic."""

from __future__ import annotations

from dsgen.cost.bounds import most_speed
from dsgen.cost.steps import StepCost, cost

__all__ = ["StepCost", "cost", "most_speed"]
