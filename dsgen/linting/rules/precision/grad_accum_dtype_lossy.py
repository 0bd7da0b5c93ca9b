"""Gradients accumulated in a dtype that loses what they hold."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.dtypes import DTYPES, model_dtype
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The dtype, where it is narrower in range than the model's."""
    path = "data_types.grad_accum_dtype"
    wanted, model = DTYPES.get(str(subject.raw(path))), model_dtype(subject)
    narrow = wanted == "int8" or (wanted == "fp16" and model in ("bf16", "fp32"))
    if subject.stage and narrow:
        does = "rounds most of them to 0" if wanted == "int8" else "overflows at 65,504, with no loss scale against it"
        said = f"gradients accumulate in {wanted}, which {does}; fp32 holds them"
        stops = wanted == "int8" and subject.stage == 1 and subject.offload("optimizer") == "none"
        worst = Severity.ERROR if stops else None
        yield Fault(path, said, Fix("write fp32", (Assign(path, "fp32"),), safe=False), worst, on="value")


RULE = Rule(
    code="DSG611",
    name="grad-accum-dtype-lossy",
    severity=Severity.WARNING,
    what="data_types.grad_accum_dtype is fp16 or int8 beside a model in bf16 or fp32.",
    why=(
        "ZeRO takes any dtype without a word. fp16 overflows at 65,504, without the loss scale that fp16 training "
        "has against it; int8 rounds gradients to 0, and at stage 1 the first step stops."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "fp16"}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "fp32"}
}""",
    evidence=(
        "deepspeed/runtime/zero/stage_1_and_2.py (0.19.8)",
        "probes P_gad_fp16_bf16_z2, gad_fp16_bf16_z1",
    ),
    check=check,
)
