"""A value that the config fixes and that TrainingArguments must repeat."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every key the Trainer compares that holds a value of its own."""
    for path, argument in subject.target.matched.items():
        value = subject.raw(path)
        if value is not None and value != "auto":
            message = f"{path} is {say(value)}; {subject.target.title} refuses it unless {argument} is the same"
            fix = Fix('write "auto"', (Assign(path, "auto"),), safe=False)
            yield Fault(path, message, fix, on="value")


RULE = Rule(
    code="DSG906",
    name="value-must-match",
    severity=Severity.INFO,
    what="A config for the Trainer fixes what TrainingArguments say as well.",
    why=(
        "The Trainer compares these keys with its arguments when training begins and raises a ValueError for all that "
        'differ: the file and the command line must be changed together. "auto" takes the argument.'
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 4,
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {"stage": 2}
}""",
    evidence=("transformers/integrations/deepspeed.py (5.23.0): fill_match, trainer_config_finalize",),
    check=check,
    given={"target": "hf-trainer"},
)
