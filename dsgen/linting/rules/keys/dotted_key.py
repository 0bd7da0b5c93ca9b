"""A key whose name is the path of another: "zero_optimization.stage"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsgen.documents.editor import apply_to_config
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Edit, Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every key with dots in its name that would be one of DeepSpeed's if it were nested."""
    for around, path, value in subject.dotted():
        section, _, name = path.rpartition(".")
        strict = subject.surface.sections.get(around) == "strict"
        does = "rejects the whole config" if strict else "never reads it"
        said = f"{path} is one key with dots in its name, and DeepSpeed {does}; {name} belongs inside {section}"
        yield Fault(path, said, _nested(subject, path, value), Severity.ERROR if strict else None)


def _nested(subject: Subject, path: str, value: Any) -> Fix | None:
    """The offer to nest it; None where the place is taken, or holds no section."""
    edits: tuple[Edit, ...] = (Remove(path), Assign(path, value))
    try:
        apply_to_config(subject.config, edits)
    except ValueError:
        return None
    section, _, name = path.rpartition(".")
    return Fix(f"nest {name} in {section}", edits, safe=False)


RULE = Rule(
    code="DSG112",
    name="dotted-key",
    severity=Severity.WARNING,
    what="A key has the path of another as its name.",
    why=(
        "DeepSpeed reads a config as nested sections, and nothing takes dots apart: `zero_optimization.stage` as one "
        "key at the top trains at stage 0 without a word. In the strict sections such a key stops the parse."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization.stage": 3
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3}
}""",
    evidence=("DeepSpeed 0.19.8 run with the key: it trains at stage 0",),
    check=check,
)
