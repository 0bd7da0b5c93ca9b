"""Lamb without an adaptive loss scale."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import client_wins, number
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The fixed loss scale beside Lamb."""
    scale = number(subject.value("fp16.loss_scale"))
    if subject.optimizer in ("lamb", "onebitlamb") and scale and not client_wins(subject):
        fix = Fix("write 0", (Assign("fp16.loss_scale", 0),), safe=False)
        said = f"Lamb refuses a fixed loss scale, and fp16.loss_scale is {scale:g}; 0 adapts it"
        yield Fault("fp16.loss_scale", said, fix, on="value")


RULE = Rule(
    code="DSG517",
    name="lamb-needs-dynamic-loss-scale",
    severity=Severity.ERROR,
    what="The optimizer is Lamb and fp16 does not adapt its loss scale.",
    why=(
        'deepspeed.initialize stops with "DeepSpeed lamb optimizer requires dynamic loss scaling" where '
        "fp16.loss_scale is a fixed number, whether fp16 is on or not."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "Lamb", "params": {"lr": 0.001}},
  "zero_optimization": {"stage": 1},
  "fp16": {"enabled": true, "loss_scale": 128},
  "zero_allow_untested_optimizer": true
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
  "zero_optimization": {"stage": 1},
  "fp16": {"enabled": true, "loss_scale": 128}
}""",
    evidence=("deepspeed/runtime/engine.py (0.19.8): _do_sanity_check",),
    check=check,
)
