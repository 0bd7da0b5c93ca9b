"""A key that the program sets whatever the config says."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every such key that is written."""
    for path, value in subject.target.overwritten.items():
        if subject.raw(path) is not None:
            message = f"{path} does nothing here: {subject.target.title} sets it to {say(value).lower()}"
            yield Fault(path, message, Fix(f"remove {path}", (Remove(path),)))


RULE = Rule(
    code="DSG907",
    name="value-overwritten",
    severity=Severity.INFO,
    what="A config for the Trainer or Accelerate sets steps_per_print.",
    why="Accelerate sets it to infinity, so that DeepSpeed prints no steps; the program logs its own way.",
    example="""{
  "train_micro_batch_size_per_gpu": "auto",
  "steps_per_print": 100,
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {"stage": 2}
}""",
    evidence=("accelerate/utils/dataclasses.py (1.15.0): DeepSpeedPlugin.__post_init__",),
    check=check,
    given={"target": "hf-trainer"},
)
