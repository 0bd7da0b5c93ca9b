"""Gradients summed over the ranks where DeepSpeed can only average them."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_KEY = "gradient_allreduce_op"


def check(subject: Subject) -> Iterator[Fault]:
    """gradient_allreduce_op "sum" at stage 3, with ZenFlow or with DeepCompile."""
    if str(subject.value(_KEY)).lower() != "sum":
        return
    beside = "ZeRO stage 3" if subject.stage == 3 else None
    if subject.raw("zero_optimization.zenflow") is not None:
        beside = beside or "ZenFlow"
    if subject.value("compile.deepcompile") is True:
        beside = beside or "DeepCompile"
    if beside:
        message = f'{_KEY} "sum" does not go with {beside}, and DeepSpeed stops at the parse'
        yield Fault(_KEY, message, Fix("remove it: gradients are averaged", (Remove(_KEY),), safe=False), on="value")


RULE = Rule(
    code="DSG332",
    name="gradient-sum-refused",
    severity=Severity.ERROR,
    what="Gradients are to be summed, which this way of running does not offer.",
    why="`ValueError: gradient_allreduce_op='sum' is not supported with ZeRO stage 3` (ZenFlow, DeepCompile).",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_allreduce_op": "sum",
  "zero_optimization": {"stage": 3}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_allreduce_op": "sum",
  "zero_optimization": {"stage": 2}
}""",
    evidence=("deepspeed/runtime/config.py (0.19.8): _do_error_check", "probes Z_sum_z3, ZF_sum"),
    check=check,
    since="0.19.6",
)
