"""True, False or None without quotes."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import bare_texts, severity_at, word
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_WORDS = {"true": True, "false": False, "none": None, "null": None}


def check(subject: Subject) -> Iterator[Fault]:
    """Every word of Python's that JSON writes otherwise."""
    for path, text in bare_texts(subject):
        if word(text) in _WORDS:
            meant = _WORDS[word(text)]
            message = f"{path} is the text {say(text)} to DeepSpeed; it must be {say(meant)}"
            severity = severity_at(subject, path)
            keeps = meant is True or severity is Severity.ERROR  # elsewhere any text counts as true
            fix = Fix(f"write {say(meant)}", (Assign(path, meant),), safe=keeps)
            yield Fault(path, message, fix, severity=severity, on="value")


RULE = Rule(
    code="DSG014",
    name="python-literal",
    severity=Severity.WARNING,
    what="A value is written as in Python: True, False, None.",
    why=(
        "HJSON knows true, false and null in small letters. Anything else without quotes is a text up to the "
        "end of the line, the comma included: 'False,' counts as true wherever DeepSpeed does not check the "
        "type."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {
    "stage": 2,
    "overlap_comm": True
  }
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {
    "stage": 2,
    "overlap_comm": true
  }
}""",
    evidence=("hjson 3.1.0: decoder.py, scantfnns",),
    check=check,
)
