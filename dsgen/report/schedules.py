"""What the learning rate does over a run, in a sentence and as data."""

from __future__ import annotations

from typing import Any

from dsgen.planning.lengths import CONSTANT, UNWRITTEN, schedule
from dsgen.planning.planner import Plan

__all__ = ["data", "sentence"]

_FALLS = {"WarmupCosineLR": "along a cosine", "WarmupDecayLR": "linearly"}


def sentence(plan: Plan) -> str:
    """The schedule in a sentence; empty where there is none, or another than a plan writes."""
    job = plan.job
    planned, rate = schedule(job, plan.chosen.strategy), f"learning rate {job.training.lr:g}"
    warmup = _steps(planned.warmup_steps)
    if planned.kind == "program" and not job.whole and not job.deepspeed.get("scheduler"):
        return f"{rate}; its schedule is left to the program"
    if not _written(plan, planned.kind):
        return ""
    if planned.kind == CONSTANT:
        asked = job.training.scheduler == CONSTANT
        because = "as asked" if asked else "how long training lasts is not known"
        way = "" if asked else " (--total-steps N or --total-tokens N lets it fall)"
        return f"{rate}, constant after {warmup} of warm-up: {because}{way}"
    if planned.total_steps is None:
        return ""  # the renderer refuses it
    return f"{rate} falls {_FALLS[planned.kind]} over {_steps(planned.total_steps)}, after {warmup} of warm-up"


def data(plan: Plan) -> dict[str, Any] | None:
    """The schedule as plain JSON types; None where `sentence` is empty."""
    planned = schedule(plan.job, plan.chosen.strategy)
    if not (said := sentence(plan)):
        return None
    return {
        "type": planned.kind,
        "learning_rate": plan.job.training.lr,
        "warmup_steps": None if planned.kind == "program" else planned.warmup_steps,
        "total_steps": planned.total_steps,
        "says": said,
    }


def _steps(count: int) -> str:
    return f"{count:,} step{'s' if count > 1 else ''}"


def _written(plan: Plan, kind: str) -> bool:
    """Whether the config has the schedule of the plan, and no other that a key of DeepSpeed's names."""
    if plan.job.whole:  # it has its own, or the program that loads it
        return False
    named = plan.job.deepspeed.get("scheduler")
    return kind not in UNWRITTEN and (not isinstance(named, dict) or named.get("type", kind) == kind)
