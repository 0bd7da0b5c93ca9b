"""Quantized gradients beside what stage 3 does not combine them with."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.zero_quantized_gradients"
_SCATTER = "zero_optimization.reduce_scatter"


def check(subject: Subject) -> Iterator[Fault]:
    """Quantized gradients at stage 3 with Muon, or without reduce_scatter."""
    if subject.stage != 3 or subject.value(_PATH) is not True:
        return
    if subject.optimizer == "muon":
        message = "zero_quantized_gradients does not go with Muon at stage 3: deepspeed.initialize stops"
        yield Fault(_PATH, message, Fix("remove zero_quantized_gradients", (Remove(_PATH),), safe=False))
    elif subject.value(_SCATTER) is False:
        message = "zero_quantized_gradients needs reduce_scatter, which is false: deepspeed.initialize stops"
        yield Fault(_SCATTER, message, Fix("write true", (Assign(_SCATTER, True),), safe=False), on="value")


RULE = Rule(
    code="DSG322",
    name="quantized-gradients-refused",
    severity=Severity.ERROR,
    what="Gradients are to be quantized without reduce_scatter, or for Muon.",
    why=(
        "Stage 3 asserts: `when enable all_to_all_reduce, reduce_scatter should also be enabled`, and `Muon and "
        "all2all process group cannot be used together`."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "zero_quantized_gradients": true, "reduce_scatter": false}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "zero_quantized_gradients": true}
}""",
    evidence=("deepspeed/runtime/zero/stage3.py (0.19.8): __init__", "probe ZPP_qg_z3_norsc; run with Muon"),
    check=check,
)
