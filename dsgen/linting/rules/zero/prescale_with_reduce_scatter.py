"""Gradients scaled before they are reduced, at a stage that scatters them."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.values import counts_as_true
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """prescale_gradients, or gradient_predivide_factor other than 1, at stage 2 or 3 with reduce_scatter."""
    scatters = subject.value("zero_optimization.reduce_scatter") is True
    if subject.stage not in (2, 3) or not scatters:
        return
    if subject.stage == 2 and str(subject.value("gradient_allreduce_op")).lower() == "sum":
        return  # then stage 2 does not ask
    factor = subject.value("gradient_predivide_factor")
    divides = isinstance(factor, (int, float)) and not isinstance(factor, bool) and factor != 1
    asked = {"prescale_gradients": counts_as_true(subject, "prescale_gradients"), "gradient_predivide_factor": divides}
    for key in (name for name, on in asked.items() if on and subject.value(name) != "auto"):  # that has a rule itself
        said = key if key == "prescale_gradients" else f"{key} {factor}"
        message = f"{said} does not go with reduce_scatter at stage {subject.stage}: deepspeed.initialize stops"
        yield Fault(key, message, Fix(f"remove {key}", (Remove(key),), safe=False))


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
)
