"""A file without a config in it."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """A file that holds nothing."""
    yield from noted(subject, "empty-file")


RULE = Rule(
    code="DSG002",
    name="empty-file",
    severity=Severity.ERROR,
    what="The file is empty or holds only comments.",
    why=(
        "hjson reads it as a config without keys, which DeepSpeed refuses for want of a batch size; Python's "
        "json refuses the file itself."
    ),
    example="""# still to be written
""",
    instead="""{"train_micro_batch_size_per_gpu": 1}""",
    evidence=(
        "hjson 3.1.0: decoder.py, raw_decode",
        "probe T_empty of DeepSpeed 0.19.8",
    ),
    check=check,
    reads="text",
)
