"""A file far larger than any config."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """A file that nobody should parse."""
    yield from noted(subject, "too-large")


RULE = Rule(
    code="DSG007",
    name="too-large",
    severity=Severity.ERROR,
    what="The file is larger than 1 MB, or its YAML aliases multiply beyond 10,000 entries.",
    why=(
        "The largest of 265 public configs has 2.7 kB. A file that large is data or a checkpoint named by "
        "mistake; nobody parses it."
    ),
    example="",
    instead="",
    evidence=("265 configs from public repositories",),
    check=check,
    reads="text",
)
