"""An optimizer of a package that is not installed."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import client_wins
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The type, as a note where nobody said what is installed."""
    if subject.optimizer not in ("muadam", "muadamw", "musgd") or client_wins(subject):
        return
    name = subject.raw("optimizer.type")
    if "mup" in subject.facts.missing:
        said = f"{name} comes from the package mup, which is not installed, and deepspeed.initialize stops"
        yield Fault("optimizer.type", said, on="value")
    else:
        said = f"{name} comes from the package mup; without it deepspeed.initialize stops"
        yield Fault("optimizer.type", said, None, Severity.INFO, on="value")


RULE = Rule(
    code="DSG516",
    name="optimizer-package-missing",
    severity=Severity.ERROR,
    what="MuAdam, MuAdamW and MuSGD come from the package mup, and the machine does not have it.",
    why=(
        'DeepSpeed logs "Install mup" and then stops in deepspeed.initialize with an UnboundLocalError, which '
        "says nothing of mup."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "MuAdam", "params": {"lr": 0.001}},
  "zero_optimization": {"stage": 0}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "Adam", "params": {"lr": 0.001}},
  "zero_optimization": {"stage": 0}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _configure_basic_optimizer",
        "probe OPT_MuAdam",
    ),
    check=check,
    given={"missing": ["mup"]},
)
