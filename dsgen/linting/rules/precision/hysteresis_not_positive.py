"""A hysteresis with which the loss scale never falls."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import number
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import OPEN, Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The value, where fp16 is or may be on and the scale adapts."""
    path = "fp16.hysteresis"
    value = number(subject.value(path))
    adapts = number(subject.value("fp16.loss_scale")) == 0 and subject.value("fp16.enabled") in (True, OPEN)
    if subject.stage and adapts and value is not None and value <= 0:
        said = f"with hysteresis {value:g} the loss scale never falls after an overflow; it must be at least 1"
        yield Fault(path, said, Fix("write 2", (Assign(path, 2),), safe=False), on="value")


RULE = Rule(
    code="DSG607",
    name="hysteresis-not-positive",
    severity=Severity.WARNING,
    what="fp16.hysteresis is 0 or negative.",
    why=(
        "DeepSpeed counts it down to 1 before it halves the scale, and from 0 it never gets there: every overflow "
        "skips a step and the scale stays."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "fp16": {"enabled": true, "hysteresis": 0}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "fp16": {"enabled": true, "hysteresis": 2}
}""",
    evidence=(
        "deepspeed/runtime/fp16/loss_scaler.py (0.19.8): update_scale",
        "DeepSpeed 0.19.8 run: 40 of 40 steps skipped from 2^32",
    ),
    check=check,
    shows=("loss scale after them",),
)
