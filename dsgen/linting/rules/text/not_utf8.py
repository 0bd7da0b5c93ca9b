"""A file that is not UTF-8."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """A file that could not be decoded."""
    yield from noted(subject, "not-utf8")


RULE = Rule(
    code="DSG006",
    name="not-utf8",
    severity=Severity.ERROR,
    what="The bytes of the file are not UTF-8 text.",
    why=(
        "Python's open() stops with a UnicodeDecodeError. A file from Windows may be UTF-16 or Latin-1; a "
        "wrong path may lead to a checkpoint."
    ),
    example="",
    instead="",
    evidence=("deepspeed/runtime/config.py (0.19.8): open(config, " r")",),
    check=check,
    reads="text",
)
