"""A value that the config fixes and that TrainingArguments must repeat."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.arguments import number
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every key the Trainer compares that holds a value of its own; graver where no argument fits two of them."""
    first: dict[str, str] = {}
    for path, argument in subject.target.matched.items():
        value = subject.raw(path)
        if value is None or value == "auto":
            continue
        other = first.setdefault(argument, path)
        if number(value) is not None and number(subject.raw(other)) not in (None, number(value)):
            yield _clash(subject, path, other, argument)
        else:
            message = f"{path} is {say(value)}; {subject.target.title} refuses it unless it agrees with {argument}"
            fix = Fix('write "auto"', (Assign(path, "auto"),), safe=False)
            yield Fault(path, message, fix, on="value")


def _clash(subject: Subject, path: str, other: str, argument: str) -> Fault:
    """Two keys that are compared with one argument and differ."""
    message = (
        f"{path} is {say(subject.raw(path))} and {other} is {say(subject.raw(other))}; {subject.target.title} compares "
        f"both with {argument}, so no {argument} fits and it stops (ValueError)"
    )
    return Fault(path, message, Fix('write "auto"', (Assign(path, "auto"),), safe=False), Severity.ERROR, on="value")


RULE = Rule(
    code="DSG906",
    name="value-must-match",
    severity=Severity.INFO,
    what="A config for the Trainer fixes what TrainingArguments say as well.",
    why=(
        "The Trainer compares these keys with its arguments when training begins and raises a ValueError for all that "
        'differ: the file and the command line must be changed together. "auto" takes the argument. Where two keys '
        "that are compared with one argument differ (lr and warmup_max_lr with learning_rate) no argument helps."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 4,
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "transformers/integrations/deepspeed.py (5.23.0): fill_match, trainer_config_finalize",
        "the Trainer of transformers 5.23.0 run with such a config: benchmarks/data/program-verdicts.json",
    ),
    check=check,
    given={"target": "hf-trainer"},
)
