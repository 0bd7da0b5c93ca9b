"""A text that is neither JSON, HJSON nor YAML."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """What the reader of the file stops at."""
    yield from noted(subject, "broken-syntax")


RULE = Rule(
    code="DSG001",
    name="broken-syntax",
    severity=Severity.ERROR,
    what="The text cannot be read: a bracket, a quote, a comma or a colon is missing or one too many.",
    why=(
        "DeepSpeed reads the file with the package hjson, the Hugging Face Trainer, Accelerate and Lightning "
        "with Python's json. Both stop with a decode error before anything starts. After an unclosed bracket "
        "the readers name the end of the file; the finding names the bracket."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {
    "stage": 2
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {
    "stage": 2
  }
}""",
    evidence=(
        "hjson 3.1.0: decoder.py",
        "deepspeed/runtime/config.py (0.19.8): DeepSpeedConfig.__init__",
    ),
    check=check,
    reads="text",
)
