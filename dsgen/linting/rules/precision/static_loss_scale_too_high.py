"""A fixed loss scale that fp16 cannot hold."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import number
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import OPEN, Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_LARGEST = 65504  # IEEE 754 binary16


def check(subject: Subject) -> Iterator[Fault]:
    """The value, where fp16 is or may be on."""
    path = "fp16.loss_scale"
    scale = number(subject.value(path))
    if scale is not None and scale > _LARGEST and subject.stage and subject.value("fp16.enabled") in (True, OPEN):
        fix = Fix("write 0", (Assign(path, 0),), safe=False)
        said = f"a fixed loss scale of {scale:g} overflows fp16 at a gradient of 1 and never falls; 0 adapts it"
        yield Fault(path, said, fix, on="value")


RULE = Rule(
    code="DSG605",
    name="static-loss-scale-too-high",
    severity=Severity.WARNING,
    what="fp16.loss_scale is above 65,504, the largest number of fp16.",
    why=(
        "A gradient of 1 already overflows. The scale never falls, every overflow skips the step, and nothing is "
        "learnt: DeepSpeed logs it and goes on."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "fp16": {"enabled": true, "loss_scale": 1000000000}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "fp16": {"enabled": true, "loss_scale": 0}
}""",
    evidence=(
        "deepspeed/runtime/fp16/loss_scaler.py (0.19.8): LossScaler",
        "DeepSpeed 0.19.8 run: 6 of 6 steps skipped at 1e9",
    ),
    check=check,
    shows=("steps that the loss scaler let through",),
)
