"""SparseAdam, which takes sparse gradients only."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import client_wins
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The type."""
    if subject.raw("optimizer.type") == "SparseAdam" and not client_wins(subject):
        said = "SparseAdam stops at a dense gradient"
        if subject.stage:
            yield Fault("optimizer.type", f"{said}, and ZeRO makes every gradient dense", on="value")
        else:
            said = f"{said}; only sparse embeddings have others"
            yield Fault("optimizer.type", said, None, Severity.WARNING, on="value")


RULE = Rule(
    code="DSG515",
    name="sparse-adam",
    severity=Severity.ERROR,
    what="The optimizer is SparseAdam.",
    why=(
        "It stops at a dense gradient. ZeRO flattens gradients and makes all of them dense, so that the first "
        "step fails at stage 1, 2 and 3; without ZeRO it fails wherever a layer is not a sparse embedding."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "SparseAdam", "params": {"lr": 0.001}},
  "zero_optimization": {"stage": 2},
  "zero_allow_untested_optimizer": true
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "torch/optim/sparse_adam.py (2.13): step",
        "DeepSpeed 0.19.8 run with it at stages 0 and 2",
    ),
    check=check,
)
