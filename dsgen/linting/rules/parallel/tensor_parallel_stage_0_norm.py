"""Tensor parallelism at stage 0 in bf16."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.tensor_parallelism import SIZE, tensor_parallel
from dsgen.linting.rules.zero_switches import settled
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """An autotp_size above 1 at stage 0 with bf16."""
    if tensor_parallel(subject) == 1 or subject.stage != 0 or not subject.on("bf16"):
        return
    if not settled(subject):
        return
    message = (
        "autotp_size in bf16 at stage 0: each GPU takes the gradient norm of its own part of the model, so clipping "
        "is too weak; stage 1 computes the norm of all"
    )
    yield Fault(SIZE, message, Fix("write stage: 1", (Assign("zero_optimization.stage", 1),), safe=False))


RULE = Rule(
    code="DSG408",
    name="tensor-parallel-stage-0-norm",
    severity=Severity.WARNING,
    what="With AutoTP in bf16 at stage 0 the gradient norm is wrong.",
    why=(
        "One model, one batch: norm 1.7252 on one GPU per layer, 1.1506 on two at stage 0 in bf16, 1.7252 again at "
        "stage 1. Clipping compares with that number."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "tensor_parallel": {"autotp_size": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "tensor_parallel": {"autotp_size": 2},
  "zero_optimization": {"stage": 1}
}""",
    evidence=("probes TPgn_z0_tp1, TPgn_z0_tp2, TPgn_z1_tp2 (DeepSpeed 0.19.8)",),
    check=check,
    since="0.16.4",
)
