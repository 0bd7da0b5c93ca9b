"""A file that is not UTF-8."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.findings import Fault, Severity
from dsgen.rules.rule import Rule
from dsgen.rules.texts import noted
from dsgen.subjects import Subject

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
