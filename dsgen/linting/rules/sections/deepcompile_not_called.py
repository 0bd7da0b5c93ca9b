"""DeepCompile asked for in a program that does not compile."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_PATH = "compile.deepcompile"


def check(subject: Subject) -> Iterator[Fault]:
    """deepcompile, unless the program is known to call engine.compile()."""
    if subject.value(_PATH) is True and subject.surface.key(_PATH) and "engine.compile" not in subject.facts.calls:
        yield Fault(_PATH, f"{_PATH} does nothing until the program calls engine.compile()")


RULE = Rule(
    code="DSG711",
    name="deepcompile-not-called",
    severity=Severity.WARNING,
    what="compile.deepcompile is on and nobody says that the program calls engine.compile().",
    why=(
        "The switch only chooses what engine.compile() does. deepspeed.initialize does not call it, so training "
        "runs eagerly, as fast or slow as without. Say `--calls engine.compile` when the program does."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3},
  "compile": {"deepcompile": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3}
}""",
    evidence=(("deepspeed/runtime/engine.py (0.19.8): is_deepcompile_active() turns true in compile() alone"),),
    check=check,
    since="0.16.6",
)
