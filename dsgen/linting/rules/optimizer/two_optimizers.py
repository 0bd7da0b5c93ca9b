"""An optimizer in the config and another in the program."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import client_wins
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The section, where it is never built."""
    if client_wins(subject) and isinstance(subject.raw("optimizer.type"), str):
        fix = Fix("remove optimizer", (Remove("optimizer"),))
        yield Fault("optimizer", "the program passes an optimizer of its own, and DeepSpeed ignores this section", fix)


RULE = Rule(
    code="DSG526",
    name="two-optimizers",
    severity=Severity.WARNING,
    what="The program passes an optimizer and the config names one too.",
    why="The program's wins without a word, and the section optimizer, its learning rate included, does nothing.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _configure_optimizer",
        "probe O_client_and_cfg",
    ),
    check=check,
    given={"client_optimizer": "torch"},
)
