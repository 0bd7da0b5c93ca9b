"""immediate_grad_update under an optimizer that does not read it."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.dtypes import DTYPES
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The key, at the one stage where it depends on more than the stage."""
    path = "bf16.immediate_grad_update"
    fp32 = (
        DTYPES.get(str(subject.raw("data_types.grad_accum_dtype"))) == "fp32" and subject.offload("optimizer") == "none"
    )
    if subject.raw(path) is True and subject.on("bf16") and subject.stage == 1 and not fp32:
        said = "at stage 1 immediate_grad_update is read only with data_types.grad_accum_dtype fp32 and without offload"
        yield Fault(path, said, Fix("remove immediate_grad_update", (Remove(path),)))


RULE = Rule(
    code="DSG625",
    name="immediate-grad-update-unread",
    severity=Severity.WARNING,
    what="bf16.immediate_grad_update is true at stage 1 without gradients in fp32.",
    why=(
        "Only BF16_Optimizer reads it, and at stage 1 that one is chosen by data_types.grad_accum_dtype fp32 "
        "without offload. Otherwise the key does nothing."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 1},
  "bf16": {"enabled": true, "immediate_grad_update": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 1},
  "bf16": {"enabled": true, "immediate_grad_update": true},
  "data_types": {"grad_accum_dtype": "fp32"}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _do_optimizer_sanity_check",
        "probe P_bf16_immediate_z1",
    ),
    check=check,
)
