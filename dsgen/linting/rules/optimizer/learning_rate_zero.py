"""A learning rate of 0, with which nothing is learnt."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import arguments, client_wins, number, peak
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The value, where it stays in force."""
    path = "optimizer.params.lr"
    own = subject.optimizer == "muon" and {"muon_lr", "adam_lr"} & set(arguments(subject, "optimizer"))
    if number(subject.raw(path)) == 0 and peak(subject) is None and not own and not client_wins(subject):
        yield Fault(path, "lr is 0 and no schedule sets another, so that no step changes anything", on="value")


RULE = Rule(
    code="DSG524",
    name="learning-rate-zero",
    severity=Severity.WARNING,
    what="optimizer.params.lr is 0 and no schedule sets another.",
    why="Every step runs and changes nothing.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0}},
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2}
}""",
    evidence=("DeepSpeed 0.19.8: no check of lr",),
    check=check,
)
