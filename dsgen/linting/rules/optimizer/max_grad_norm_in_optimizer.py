"""max_grad_norm among the arguments of the optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import client_wins
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Move, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The key, where DeepSpeed builds the optimizer."""
    path = "optimizer.params.max_grad_norm"
    if not subject.written(path) or client_wins(subject) or subject.raw("optimizer.type") is None:
        return
    if subject.written("gradient_clipping"):
        fix = Fix("remove max_grad_norm", (Remove(path),))
    else:
        fix = Fix("move to gradient_clipping", (Move(path, "gradient_clipping"),))
    said = "DeepSpeed refuses max_grad_norm as an argument of the optimizer; the key is gradient_clipping"
    yield Fault(path, said, fix)


RULE = Rule(
    code="DSG507",
    name="max-grad-norm-in-optimizer",
    severity=Severity.ERROR,
    what="optimizer.params has max_grad_norm.",
    why=(
        "deepspeed.initialize stops with a ValueError for every optimizer, even FusedLamb, whose signature still "
        "has it. DeepSpeed's key for the same is gradient_clipping, at the top level."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001, "max_grad_norm": 1.0}},
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "gradient_clipping": 1.0
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _configure_basic_optimizer",
        "probe OPT_maxgradnorm",
    ),
    check=check,
)
