"""Maps and lists nested beyond any config."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """What nests too deep."""
    yield from noted(subject, "too-deep")


RULE = Rule(
    code="DSG005",
    name="too-deep",
    severity=Severity.ERROR,
    what="Maps or lists nest deeper than 100 levels.",
    why=(
        "The deepest key that DeepSpeed reads has 7 levels, and hjson runs into Python's limit of recursion "
        "near 490. Nothing else is said of such a file."
    ),
    example="""{"train_micro_batch_size_per_gpu": 1, "x": """ + "[" * 101 + "]" * 101 + "}",
    instead="""{"train_micro_batch_size_per_gpu": 1}""",
    evidence=("hjson 3.1.0, Python 3.11: RecursionError between 490 and 500 maps",),
    check=check,
    reads="text",
)
