"""Gradients sent in fp16 although the model is not in fp16."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.dtypes import model_dtype
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The key, where the model's dtype is known to be another."""
    path = "communication_data_type"
    value = subject.raw(path)
    model = model_dtype(subject)
    if isinstance(value, str) and value.lower() == "fp16" and model in ("bf16", "fp32"):
        said = f"gradients of a model in {model} are sent in fp16, where they overflow and vanish without a loss scale"
        yield Fault(path, said, Fix("remove communication_data_type", (Remove(path),), safe=False), on="value")


RULE = Rule(
    code="DSG614",
    name="communication-in-fp16",
    severity=Severity.WARNING,
    what="communication_data_type is fp16 beside a model in bf16 or fp32.",
    why=(
        "Gradients of such a model carry no loss scale: above 65,504 they become infinite on the way, and small "
        "ones become 0. DeepSpeed says nothing."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true},
  "communication_data_type": "fp16"
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true},
  "communication_data_type": "fp32"
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): communication_data_type, allreduce_bucket",
        "probes P_comm_fp16_z2, CommFp16_fp32model",
    ),
    check=check,
)
