"""A decay of OneCycle that never starts."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import arguments, number
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every decay that is switched off by the step size."""
    params = arguments(subject, "scheduler")
    if subject.raw("scheduler.type") != "OneCycle" or number(params.get("decay_step_size", 0)) != 0:
        return
    for name in ("decay_lr_rate", "decay_mom_rate"):
        if number(params.get(name, 0)):
            said = f"{name} does nothing while decay_step_size is 0, as it is by default"
            yield Fault(f"scheduler.params.{name}", said)


RULE = Rule(
    code="DSG564",
    name="cycle-decay-without-steps",
    severity=Severity.WARNING,
    what="decay_lr_rate or decay_mom_rate is set and decay_step_size is 0, as by default.",
    why=(
        "OneCycle skips both decays when the step size is 0 and says nothing: after the cycle the learning rate "
        "stays at cycle_min_lr."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {
    "type": "OneCycle",
    "params": {"cycle_min_lr": 0.0001, "cycle_max_lr": 0.001, "decay_lr_rate": 0.1}
  }
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {
    "type": "OneCycle",
    "params": {
      "cycle_min_lr": 0.0001,
      "cycle_max_lr": 0.001,
      "decay_lr_rate": 0.1,
      "decay_step_size": 1000
    }
  }
}""",
    evidence=("deepspeed/runtime/lr_schedules.py (0.19.8): OneCycle._initialize_cycle",),
    check=check,
)
