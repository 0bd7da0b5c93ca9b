"""Gradients that accumulate over a number of micro-batches with a fraction."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from dsgen.linting.rules.batch_sizes import ACCUMULATION
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_LARGEST_TERM = 1_000  # 0.1 is one tenth, and no binary fraction


def check(subject: Subject) -> Iterator[Fault]:
    """The accumulation, where it is above 0 and not whole; what is below is judged elsewhere."""
    value = subject.value(ACCUMULATION)
    if not isinstance(value, float) or not 0 < value < float("inf") or value.is_integer():
        return
    every = Fraction(value).limit_denominator(_LARGEST_TERM).numerator
    steps = "every micro-batch" if every == 1 else f"micro-batch {every} and its multiples alone"
    better = max(1, round(value))
    message = (
        f"{ACCUMULATION} is {value:g}: DeepSpeed steps after {steps}, where their number divides by it, and divides "
        f"each loss by {value:g}; it must be a whole number above 0"
    )
    yield Fault(ACCUMULATION, message, Fix(f"write {better}", (Assign(ACCUMULATION, better),), safe=False), on="value")


RULE = Rule(
    code="DSG205",
    name="accumulation-fraction",
    severity=Severity.WARNING,
    what="gradient_accumulation_steps is no whole number.",
    why=(
        "The parse only asks that the three sizes multiply. The engine steps where the count of micro-batches is a "
        "multiple of the accumulation: with 1.5 after the third, whose gradients sum up to twice a mean, and never "
        "where the program ends a step by itself."
    ),
    example='{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1.5}',
    instead='{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}',
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): is_gradient_accumulation_boundary",
        "DeepSpeed 0.19.8 run with 0.5, 1.5 and 2.5",
    ),
    check=check,
    shows=("optimizer steps: 0",),
)
