"""A first loss scale that makes the first steps overflow."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import number
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_HIGH = 24  # above it a tiny model skipped more than 5 steps (DeepSpeed 0.19.8)
_ROOM = 19  # the power at which the same model first stepped
_TOO_BIG = 64  # 2^63 still ran


def check(subject: Subject) -> Iterator[Fault]:
    """The power, where the scale adapts."""
    path = "fp16.initial_scale_power"
    power = number(subject.value(path))
    adapts = number(subject.value("fp16.loss_scale")) == 0
    if power is None or not subject.written(path) or not adapts or subject.stage == 0:
        return
    switched = subject.value("fp16.enabled")
    fix = Fix("write 16", (Assign(path, 16),), safe=False)
    if switched is True and power >= _TOO_BIG:
        said = f"2^{power:.0f} is no number that torch can multiply the loss with, and the first step stops"
        yield Fault(path, said, fix, Severity.ERROR, on="value")
    elif switched is True and power > _HIGH:
        skipped = power - _ROOM
        said = f"a first loss scale of 2^{power:.0f} overflows: expect about {skipped:.0f} skipped steps at the start"
        yield Fault(path, said, fix, on="value")


RULE = Rule(
    code="DSG604",
    name="initial-loss-scale-too-high",
    severity=Severity.WARNING,
    what="fp16.initial_scale_power is above 24.",
    why=(
        "The loss times 2 to that power overflows in fp16, whose largest number is 65,504. Every overflow skips a "
        "step and halves the scale: from 2^32 a run skips a dozen steps and more before it learns, from 2^16 "
        "hardly one. From 2^64 on torch cannot multiply with the number, and the first step stops."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "fp16": {"enabled": true, "initial_scale_power": 32}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "fp16": {"enabled": true, "initial_scale_power": 16}
}""",
    evidence=(
        "deepspeed/runtime/fp16/loss_scaler.py (0.19.8): DynamicLossScaler",
        "DeepSpeed 0.19.8 run: 13 of 40 steps skipped from 2^32, 5 from 2^24, OverflowError at 2^64",
    ),
    check=check,
    shows=("steps that the loss scaler let through",),
)
