"""A byte order mark before the config."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Erase, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_FIX = Fix("take the mark away", (Erase(0, 0),))  # a document's text is without it: nothing else goes


def check(subject: Subject) -> Iterator[Fault]:
    """The mark, where the program does not skip it."""
    for fault in noted(subject, "byte-order-mark"):
        if subject.target.strict_json:
            message = f"{fault.message}; {subject.target.title} reads it with Python's json, which refuses it"
            broken = subject.document.config is None  # such a file stays as it is, whatever else is to be fixed
            yield attrs.evolve(fault, message=message, fix=None if broken else _FIX)


RULE = Rule(
    code="DSG010",
    name="byte-order-mark",
    severity=Severity.ERROR,
    what="The file begins with a byte order mark, and Python's json reads it.",
    why=(
        "hjson skips the mark, so plain DeepSpeed starts. Python's json stops with: Unexpected UTF-8 BOM. "
        "Windows editors write the mark when a file is saved as UTF-8 with BOM."
    ),
    example='\ufeff{"train_micro_batch_size_per_gpu": 1}',
    instead="""{"train_micro_batch_size_per_gpu": 1}""",
    evidence=(
        "Python: json/__init__.py, loads",
        "accelerate/utils/deepspeed.py (1.15.0): json.load",
    ),
    check=check,
    given={"target": "hf-trainer"},
    reads="text",
)
