"""A key that stands twice in one section."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every key that is given again."""
    document, target = subject.document, subject.target
    for fault in noted(subject, "duplicate-key"):
        if document.kind == "yaml":
            message = f"{fault.message}; readers of YAML keep the last without a word"
            yield attrs.evolve(fault, message=message, severity=Severity.WARNING)
        elif target.strict_json:
            message = f"{fault.message}; {target.title} keeps the last without a word, plain DeepSpeed refuses the file"
            yield attrs.evolve(fault, message=message, severity=Severity.WARNING)
        else:
            yield attrs.evolve(fault, message=f"{fault.message}; DeepSpeed refuses such a config")


RULE = Rule(
    code="DSG004",
    name="duplicate-key",
    severity=Severity.ERROR,
    what="A section holds the same key twice.",
    why=(
        "DeepSpeed stops with ValueError: Duplicate keys in DeepSpeed config. Programs that read the file "
        "with Python's json, and readers of YAML, keep the last one without a word."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "stage": 3}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2}
}""",
    evidence=("deepspeed/runtime/config_utils.py (0.19.8): dict_raise_error_on_duplicate_keys",),
    check=check,
    reads="text",
)
