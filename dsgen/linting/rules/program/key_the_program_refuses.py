"""A key that the program sets itself and does not take from a config."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every such key that is written, whatever its value."""
    for path, argument in subject.target.refused.items():
        if subject.written(path):
            message = f"{path} is given, and {subject.target.title} refuses that; {argument} says it"
            yield Fault(path, message, Fix(f"remove {path}", (Remove(path),), safe=False))


RULE = Rule(
    code="DSG904",
    name="key-the-program-refuses",
    severity=Severity.ERROR,
    what="A config for Lightning sets gradient_accumulation_steps.",
    why=(
        "DeepSpeedStrategy of the Lightning Trainer raises a MisconfigurationException for it, because the argument "
        "accumulate_grad_batches decides. Lightning Fabric, which has no such argument, takes it."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 2
}""",
    evidence=(
        "lightning/pytorch/strategies/deepspeed.py (2.6.6): DeepSpeedStrategy._format_batch_size_and_grad_accum_config",
    ),
    check=check,
    given={"target": "lightning"},
)
