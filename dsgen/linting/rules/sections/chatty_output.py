"""Output that floods the log."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_STEPS = "steps_per_print"
_USUAL = 10  # DeepSpeed's own default (runtime/constants.py)


def check(subject: Subject) -> Iterator[Fault]:
    """A line for every step, the debug level, and the dump of the state."""
    if subject.raw(_STEPS) == 1 and subject.raw(_STEPS) is not True:
        fix = Fix(f"print every {_USUAL} steps", (Assign(_STEPS, _USUAL),), safe=False)
        yield Fault(_STEPS, "steps_per_print is 1: DeepSpeed prints two lines in every step", fix)
    if subject.raw("log_level") == "debug":
        fix = Fix("set log_level to info", (Assign("log_level", "info"),), safe=False)
        yield Fault("log_level", "log_level is debug: DeepSpeed logs what it does inside every step", fix)
    if subject.raw("dump_state") is True:
        fix = Fix("switch dump_state off", (Assign("dump_state", False),), safe=False)
        yield Fault("dump_state", "dump_state prints the whole config when the engine starts", fix)


RULE = Rule(
    code="DSG715",
    name="chatty-output",
    severity=Severity.INFO,
    what="DeepSpeed is told to print more than anyone reads.",
    why="It costs little time and buries what matters in the log.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "steps_per_print": 1
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "steps_per_print": 10
}""",
    evidence=("deepspeed/runtime/engine.py (0.19.8), step()",),
    check=check,
)
