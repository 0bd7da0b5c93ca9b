"""A window or a floor of the loss scale that is not above 0."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import number
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import OPEN, Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Each bound; a warning where the program decides whether fp16 is on."""
    switched = subject.value("fp16.enabled")
    if switched not in (True, OPEN) or number(subject.value("fp16.loss_scale")) != 0 or subject.on("bf16"):
        return
    for name, default in (("loss_scale_window", 1000), ("min_loss_scale", 1)):
        path = f"fp16.{name}"
        value = number(subject.value(path))
        if value is not None and value <= 0:
            stops = "the parse stops" if switched is True else "the parse stops once fp16 is on"
            said = f"{name} is {value:g}, and {stops}; it must be above 0 while the loss scale adapts"
            fix = Fix(f"write {default}", (Assign(path, default),), safe=False)
            yield Fault(path, said, fix, None if switched is True else Severity.WARNING, on="value")


RULE = Rule(
    code="DSG606",
    name="loss-scale-bound-not-positive",
    severity=Severity.ERROR,
    what="fp16.loss_scale_window or fp16.min_loss_scale is 0 or negative while the scale adapts.",
    why=(
        "The parse stops since 0.19.3. Before, a window of 0 divided by zero in the third good step, and a floor "
        "of 0 let the scale sink to nothing."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "fp16": {"enabled": true, "min_loss_scale": 0}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "fp16": {"enabled": true, "min_loss_scale": 1}
}""",
    evidence=(
        "deepspeed/runtime/precision_config.py (0.19.8): _validate_dynamic_loss_scale_params",
        "probe T_fp16_window_0",
    ),
    check=check,
    since="0.19.3",
)
