"""Gradients scaled before they are reduced, at a stage that scatters them."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.setups import refused
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_CODES = {
    "prescale_gradients": "prescale-with-reduce-scatter",
    "gradient_predivide_factor": "predivide-with-reduce-scatter",
}


def check(subject: Subject) -> Iterator[Fault]:
    """prescale_gradients, or gradient_predivide_factor other than 1, at stage 2 or 3 with reduce_scatter."""
    for key, code in _CODES.items():
        if why := refused(subject, code):
            yield Fault(key, why, Fix(f"remove {key}", (Remove(key),), safe=False))


RULE = Rule(
    code="DSG330",
    name="prescale-with-reduce-scatter",
    severity=Severity.ERROR,
    what="Gradients are to be divided before the reduction, which stages 2 and 3 do not do while they scatter.",
    why=(
        "`pre-scale gradients is not yet supported with ZeRO-2 with reduce scatter enabled`, and the same for "
        "gradient_predivide_factor. Without both, ZeRO divides after the reduction: the mean is the same."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "prescale_gradients": true,
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "deepspeed/runtime/zero/stage_1_and_2.py and stage3.py (0.19.8): __init__",
        "probes Z_prescale_z2, Z_prescale_z3, Z_predivide_z2",
    ),
    check=check,
    shows=("pre-scale gradients is not yet supported",),
)
