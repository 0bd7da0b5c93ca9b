"""A value without quotes that takes more than was meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.rule import OF_ANOTHER_TYPE, Rule
from dsgen.linting.rules.texts import bare_texts, is_placeholder, severity_at, word
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_RUNS_ON = re.compile(r",$|[}\]]$|\"\s*:|^[-\d.][^,]*,|^[A-Za-z_]\w*:\s")


def check(subject: Subject) -> Iterator[Fault]:
    """Every text without quotes that was meant to end earlier."""
    for path, text in bare_texts(subject):
        if not _RUNS_ON.search(text) or word(text) or is_placeholder(text, bare=True):
            continue
        message = f"{path} is the text {say(text)}: without quotes it runs to the end of the line"
        bad = severity_at(subject, path)
        yield Fault(
            path, message + (", and DeepSpeed refuses it" if bad is Severity.ERROR else ""), severity=bad, on="value"
        )


RULE = Rule(
    code="DSG015",
    name="text-runs-on",
    severity=Severity.WARNING,
    what="A value without quotes holds a comma, a bracket or the next key.",
    why=(
        "HJSON ends a text without quotes at the end of its line, not at a comma. What looks like several "
        "values or entries is one text; after a missing comma the next key of the same line is gone."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_clipping": 1.0 "steps_per_print": 10,
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_clipping": 1.0, "steps_per_print": 10,
  "zero_optimization": {"stage": 2}
}""",
    evidence=("hjson 3.1.0: decoder.py, scantfnns",),
    check=check,
    shows=OF_ANOTHER_TYPE,
)
