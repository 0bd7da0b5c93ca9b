"""NaN or Infinity as a value."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import bare_texts, every_value, noted, severity_at, word
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every value that is no finite number or the bare word for one."""
    yield from noted(subject, "not-a-number")
    for path, value in every_value(subject):
        if isinstance(value, float) and not math.isfinite(value):
            yield Fault(path, f"{path} is {value}; it must be a finite number", on="value")
    for path, text in bare_texts(subject):
        if word(text).lstrip("+-") in ("nan", "inf", "infinity"):
            message = f"{path} is no number: DeepSpeed reads the text {say(text)}; it must be a finite number"
            yield Fault(path, message, severity=severity_at(subject, path), on="value")


RULE = Rule(
    code="DSG012",
    name="not-a-number",
    severity=Severity.WARNING,
    what="A value is NaN or infinite, or the word for it.",
    why=(
        "JSON has no such number. hjson takes NaN and Infinity for a text up to the end of the line, comma "
        "and brackets included; Python's json makes the float of them, and the training computes with it."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_clipping": Infinity,
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_clipping": 0.0,
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "hjson 3.1.0: decoder.py, scantfnns",
        "Python: json/decoder.py, parse_constant",
    ),
    check=check,
    reads="text",
)
