"""HJSON for a program that reads JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import attrs

from dsgen.documents.document import Document
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Erase, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_LAST = re.compile(r'"(?:[^"\\\n]|\\.)*"|(?P<comma>,)\s*[}\]]')  # a text whole, or a comma behind the last entry


def check(subject: Subject) -> Iterator[Fault]:
    """The first thing that is no JSON, where the program takes nothing else."""
    for fault in noted(subject, "not-strict-json"):
        if subject.target.strict_json:
            message = f"{subject.target.title} reads the file with Python's json, which stops at {fault.message}"
            yield attrs.evolve(fault, message=message, fix=_without_commas(subject.document))


def _without_commas(document: Document) -> Fix | None:
    """The fix where nothing but commas behind last entries keeps Python's json from the text."""
    text = document.text
    if document.whole is not None or document.comments:
        return None
    commas = [match.start("comma") for match in _LAST.finditer(text) if match["comma"]]
    cuts = tuple(Erase(at, at + 1) for at in reversed(commas))  # the last first, so that the others stay where they are
    for cut in cuts:
        text = f"{text[: cut.start]}{text[cut.end :]}"
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return Fix(f"take {'the comma' if len(cuts) == 1 else f'{len(cuts)} such commas'} away", cuts) if cuts else None


RULE = Rule(
    code="DSG011",
    name="not-strict-json",
    severity=Severity.ERROR,
    what=(
        "The file has comments, a trailing comma or something else that only HJSON takes, and Python's json reads it."
    ),
    why=(
        "DeepSpeed's own reader takes HJSON. The Hugging Face Trainer and Accelerate (HfDeepSpeedConfig) and "
        "Lightning read the file themselves with Python's json and stop with a JSONDecodeError."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": "auto",  // the Trainer fills it in
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "accelerate/utils/deepspeed.py (1.15.0): HfDeepSpeedConfig",
        "lightning/pytorch/strategies/deepspeed.py (2.6.6): _load_config",
    ),
    check=check,
    given={"target": "hf-trainer"},
    reads="text",
)
