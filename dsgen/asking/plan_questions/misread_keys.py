"""What of a config is not as written: what DeepSpeed refuses, and keys that it does not read as they stand."""

from __future__ import annotations

from dsgen.linting.linter import lint
from dsgen.linting.model_loads import ModelLoad
from dsgen.linting.rules import RULES
from dsgen.linting.subjects import Facts, Subject
from dsgen.shapes.findings import Finding, Severity

__all__ = ["misread_keys"]

_OF_KEYS = "DSG1"  # codes of rules about keys and values whatever they are for
_ABOUT = ("config", "job")  # what rules read that speak here


def misread_keys(subject: Subject, loads: tuple[ModelLoad, ...] = ()) -> tuple[Finding, ...]:
    """The linter's findings that make the run another than the text says: its errors, and warnings about keys.

    What it says of memory and speed is left to the answer beside which these stand.

    Args:
        subject: The config.
        loads: How its program loads its model.
    """
    said = lint(
        subject.document,
        target=subject.target.name,
        deepspeed=subject.surface.version,
        facts=Facts(world_size=subject.facts.world_size, loads=loads),
        rules=[rule for rule in RULES if rule.reads in _ABOUT],
    )
    return tuple(
        one
        for one in said
        if one.severity is Severity.ERROR or (one.severity is Severity.WARNING and one.code.startswith(_OF_KEYS))
    )
