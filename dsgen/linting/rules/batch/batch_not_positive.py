"""A batch size of zero or below."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.batch_sizes import ACCUMULATION, MICRO, TRAIN, whole
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every one of the three sizes that is not above 0; false counts as 0."""
    for key in (TRAIN, MICRO, ACCUMULATION):
        value = subject.value(key)
        size = 0 if value is False else value if isinstance(value, float) and value <= 0 else whole(value)
        if size is None or size > 0:
            continue
        fix = Fix(f"write {key}: 1", (Assign(key, 1),), safe=False)
        if key == TRAIN and subject.raw(MICRO) is not None:
            fix = Fix(f"remove {key}: DeepSpeed multiplies it from the others", (Remove(key),), safe=False)
        message = f"{key} is {size}, and DeepSpeed stops at the parse; all three batch sizes must be above 0"
        yield Fault(key, message, fix, on="value")


RULE = Rule(
    code="DSG201",
    name="batch-not-positive",
    severity=Severity.ERROR,
    what="A batch size is 0 or negative.",
    why="DeepSpeed asserts that each of the three sizes is above 0. None of them means `choose for me`.",
    example='{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 0}',
    instead='{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1}',
    evidence=("deepspeed/runtime/config.py (0.19.8): _batch_assertion", "probes B_gas0, B_micro0"),
    check=check,
    shows=("has to be greater than 0",),
)
