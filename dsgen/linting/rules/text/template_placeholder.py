"""A value that a script was to fill in."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import bare_texts, every_value, is_placeholder, placeholders, severity_at
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every text that names what should stand in its place."""
    bare = dict(bare_texts(subject))
    for path, value in every_value(subject):
        if not isinstance(value, str) or not is_placeholder(value, path in bare):
            continue
        swallowed = ", comma included" if path in bare and value.endswith(",") else ""
        bad = severity_at(subject, path)
        reads = f"{say(value)}{swallowed}{', which it refuses' if bad is Severity.ERROR else ''}"
        yield Fault(path, placeholders([path], reads), severity=bad, on="value")


RULE = Rule(
    code="DSG013",
    name="template-placeholder",
    severity=Severity.WARNING,
    what="A value is still a placeholder.",
    why=(
        "DeepSpeed fills nothing in: neither ${NAME} nor {{ name }} nor environment variables. HJSON takes a "
        "bare word for a text up to the end of the line, the comma included, so that ZERO_STAGE becomes the "
        "text 'ZERO_STAGE,'."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {
    "stage": ZERO_STAGE,
    "overlap_comm": true
  }
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {
    "stage": 2,
    "overlap_comm": true
  }
}""",
    evidence=(
        "22 of 265 public configs: templates of Megatron-DeepSpeed",
        "hjson 3.1.0: decoder.py, scantfnns",
    ),
    check=check,
)
