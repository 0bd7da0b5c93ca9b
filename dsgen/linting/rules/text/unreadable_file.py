"""A path that leads to no text."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """A file that could not be opened."""
    yield from noted(subject, "unreadable-file")


RULE = Rule(
    code="DSG008",
    name="unreadable-file",
    severity=Severity.ERROR,
    what="The file is a folder, a broken link, or may not be read.",
    why=(
        "DeepSpeed takes a path that does not exist for a config in base64 and stops with a ValueError or a "
        "decoding error."
    ),
    example="",
    instead="",
    evidence=("deepspeed/runtime/config.py (0.19.8): DeepSpeedConfig.__init__",),
    check=check,
    reads="text",
)
