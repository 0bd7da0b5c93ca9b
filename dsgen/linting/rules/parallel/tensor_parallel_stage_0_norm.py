"""Tensor parallelism at stage 0 in bf16."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.tensor_parallelism import SIZE, tensor_parallel
from dsgen.linting.rules.zero_switches import settled
from dsgen.linting.setups import refused
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """An autotp_size above 1 at stage 0 with bf16."""
    why = refused(subject, "autotp-at-stage-0")
    if why is None or tensor_parallel(subject) == 1 or not subject.on("bf16") or not settled(subject):
        return
    said = f"{why}: below it each GPU takes the norm of its own part of the model, and clipping is too weak"
    yield Fault(SIZE, said, Fix("write stage: 1", (Assign("zero_optimization.stage", 1),), safe=False))


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
