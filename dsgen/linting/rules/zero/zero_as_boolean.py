"""zero_optimization as true or false."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """A section that is a truth value, where DeepSpeed is the first to read it."""
    value = subject.raw("zero_optimization")
    if not isinstance(value, bool) or "zero_optimization" in subject.target.needed:
        return
    stage = int(value)
    said = "true" if value else "false"
    message = f"zero_optimization: {said} is the form of the first releases; DeepSpeed reads it as stage {stage}"
    fix = Fix(f'write {{"stage": {stage}}}', (Assign("zero_optimization", {"stage": stage}),))
    yield Fault("zero_optimization", message, fix, on="value")


RULE = Rule(
    code="DSG301",
    name="zero-as-boolean",
    severity=Severity.WARNING,
    what="zero_optimization is true or false and no section.",
    why=(
        "DeepSpeed still takes the old form, with a warning: true is stage 1, false is stage 0. Hugging Face looks for "
        "keys inside and breaks."
    ),
    example='{"train_micro_batch_size_per_gpu": 1, "zero_optimization": true}',
    instead='{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}}',
    evidence=("deepspeed/runtime/zero/config.py (0.19.8): read_zero_config_deprecated", "probe T_zero_bool"),
    check=check,
)
