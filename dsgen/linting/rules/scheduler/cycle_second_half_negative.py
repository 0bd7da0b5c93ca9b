"""A second half of a OneCycle with fewer than no steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.arguments import number
from dsgen.linting.rules.rule import OF_ANOTHER_TYPE, Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The value, where it is below 0 or no number at all."""
    path = "scheduler.params.cycle_second_step_size"
    if subject.raw("scheduler.type") != "OneCycle":
        return
    value = subject.raw(path)
    if isinstance(value, (list, Mapping)) or (isinstance(value, str) and value != "auto" and _said(value) is None):
        said = f"cycle_second_step_size is {say(value)}, and OneCycle stops; it must be a number"
        yield Fault(path, said, on="value")
    elif (number(_said(value) if isinstance(value, str) else value) or 0) < 0:
        fix = Fix("remove cycle_second_step_size", (Remove(path),), safe=False)
        said = "cycle_second_step_size is negative, and OneCycle stops in deepspeed.initialize; it must be at least 0"
        yield Fault(path, said, fix, on="value")


def _said(text: str) -> float | None:
    """The number that OneCycle reads from a text; None where it reads none."""
    try:
        return float(text)
    except ValueError:
        return None


RULE = Rule(
    code="DSG566",
    name="cycle-second-half-negative",
    severity=Severity.ERROR,
    what="cycle_second_step_size is negative, a list, a map or a text that is no number.",
    why="deepspeed.initialize stops with an exception; null makes it as long as the first half, 0 leaves it out.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {
    "type": "OneCycle",
    "params": {"cycle_min_lr": 0.0001, "cycle_max_lr": 0.001, "cycle_second_step_size": -1}
  }
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.0001, "cycle_max_lr": 0.001}}
}""",
    evidence=(
        "deepspeed/runtime/lr_schedules.py (0.19.8): OneCycle._initialize_cycle",
        "DeepSpeed 0.19.8 run with it",
    ),
    check=check,
    shows=OF_ANOTHER_TYPE,
    since="0.19.4",
)
