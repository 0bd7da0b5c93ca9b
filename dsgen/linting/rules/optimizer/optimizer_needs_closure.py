"""LBFGS, whose step needs what DeepSpeed never passes."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import client_wins
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The type."""
    if subject.raw("optimizer.type") == "LBFGS" and not client_wins(subject):
        said = "LBFGS needs a closure in every step, and DeepSpeed passes none: the first step stops"
        yield Fault("optimizer.type", said, on="value")


RULE = Rule(
    code="DSG514",
    name="optimizer-needs-closure",
    severity=Severity.ERROR,
    what="The optimizer is LBFGS.",
    why=(
        "Its step evaluates the model again through a closure. DeepSpeed calls step without one, and the first "
        "step stops with a TypeError."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "LBFGS", "params": {"lr": 1.0}},
  "zero_optimization": {"stage": 0}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
  "zero_optimization": {"stage": 0}
}""",
    evidence=(
        "torch/optim/lbfgs.py (2.13): step",
        "probe OPT_LBFGS_z0",
    ),
    check=check,
)
