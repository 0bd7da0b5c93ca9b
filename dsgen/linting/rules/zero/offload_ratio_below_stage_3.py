"""Partial optimizer offload below stage 3."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.zero_switches import settled
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.offload_optimizer.ratio"


def check(subject: Subject) -> Iterator[Fault]:
    """A ratio below 1 at stage 0, 1 or 2, whatever the device."""
    ratio = subject.value(_PATH)
    if subject.stage == 3 or not settled(subject):
        return
    if isinstance(ratio, (int, float)) and not isinstance(ratio, bool) and 0 <= ratio < 1:
        message = f"ratio {ratio} offloads a part only, which stage 3 alone can do; DeepSpeed stops at the parse"
        yield Fault(_PATH, message, Fix("remove ratio: all is offloaded", (Remove(_PATH),), safe=False), on="value")


RULE = Rule(
    code="DSG308",
    name="offload-ratio-below-stage-3",
    severity=Severity.ERROR,
    what="Only a part of the optimizer is to be offloaded, but the stage is below 3.",
    why="A ratio below 1 stops the parse: `Partial offloading only supported for ZeRO Stage 3`.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}
}""",
    evidence=("deepspeed/runtime/zero/config.py (0.19.8): offload_ratio_check", "probe O_ratio_z2"),
    check=check,
)
