"""Tensor parallelism at stage 3 in releases that refuse it."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.tensor_parallelism import SIZE, tensor_parallel
from dsgen.linting.setups import refused
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """An autotp_size above 1 at stage 3."""
    why = refused(subject, "autotp-at-stage-3")
    if why is not None and tensor_parallel(subject) > 1:
        yield Fault(SIZE, why, Fix("write stage: 2", (Assign("zero_optimization.stage", 2),), safe=False))


RULE = Rule(
    code="DSG407",
    name="tensor-parallel-with-zero-3",
    severity=Severity.ERROR,
    what="AutoTP and ZeRO-3 together, in a release before 0.19.4.",
    why="`Currently, the compatibility between 'autotp' and 'zero_stage = 3' has not been validated`.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "tensor_parallel": {"autotp_size": 2},
  "zero_optimization": {"stage": 3}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "tensor_parallel": {"autotp_size": 2},
  "zero_optimization": {"stage": 2}
}""",
    evidence=("deepspeed/runtime/engine.py of 0.16.9, 0.17.6, 0.18.9, 0.19.0 to 0.19.3; gone in 0.19.4",),
    check=check,
    given={"deepspeed": "0.18"},
    since="0.16.4",
    until="0.19.4",
)
