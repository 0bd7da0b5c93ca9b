"""fp16.auto_cast where the model is not in fp16."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The switch, where fp16 is off for certain."""
    path = "fp16.auto_cast"
    if subject.value(path) is not True or subject.value("fp16.enabled") is not False:
        return
    model = "bf16" if subject.on("bf16") else "fp32"
    said = f"auto_cast casts floating-point inputs to fp16 although fp16 is off and the model is in {model}"
    yield Fault(path, said, Fix("remove auto_cast", (Remove(path),)))


RULE = Rule(
    code="DSG602",
    name="auto-cast-without-fp16",
    severity=Severity.WARNING,
    what="fp16.auto_cast is true while fp16 is off.",
    why=(
        "DeepSpeed looks at auto_cast alone: it casts every floating-point input to fp16 although the model is in "
        "bf16 or fp32, and the first matrix product stops. Inputs that are token numbers are not touched."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "fp16": {"enabled": false, "auto_cast": true},
  "bf16": {"enabled": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "fp16": {"enabled": false},
  "bf16": {"enabled": true}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _forward_prologue, fp16_auto_cast",
        "DeepSpeed 0.19.8 run with it in bf16 and fp32: mat1 and mat2 must have the same dtype",
    ),
    check=check,
)
