"""A schedule that ends before its warm-up does."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import arguments, built_schedule, number
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The two numbers, where both are known."""
    built = built_schedule(subject)
    if built is None or "total_num_steps" not in built.defaults:
        return
    params = arguments(subject, "scheduler")
    total = number(params.get("total_num_steps"))
    warmup = number(params.get("warmup_num_steps", built.defaults["warmup_num_steps"]))
    if total is None or warmup is None or total >= warmup:
        return
    given = "" if "warmup_num_steps" in params else ", its default"
    said = f"total_num_steps is {total:,.0f}, and the warm-up alone takes {warmup:,.0f}{given}"
    yield Fault("scheduler.params.total_num_steps", said, on="value")


RULE = Rule(
    code="DSG557",
    name="schedule-shorter-than-warmup",
    severity=Severity.WARNING,
    what="total_num_steps is below warmup_num_steps.",
    why=(
        "DeepSpeed logs a warning and trains on: the learning rate climbs for the whole run, never reaches its "
        "peak as planned, and drops to its end at once afterwards. Without warmup_num_steps the warm-up takes "
        "1,000 steps."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {
    "type": "WarmupDecayLR",
    "params": {"warmup_max_lr": 0.0001, "total_num_steps": 500}
  }
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {
    "type": "WarmupDecayLR",
    "params": {"warmup_max_lr": 0.0001, "total_num_steps": 500, "warmup_num_steps": 50}
  }
}""",
    evidence=(
        "deepspeed/runtime/lr_schedules.py (0.19.8): WarmupDecayLR, WarmupCosineLR",
        "probe SCH_decay_short",
    ),
    check=check,
)
