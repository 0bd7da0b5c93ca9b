"""Partial optimizer offload with another optimizer than DeepSpeedCPUAdam."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.zero_switches import ADAMS
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.offload_optimizer.ratio"


def check(subject: Subject) -> Iterator[Fault]:
    """A ratio below 1 at stage 3 with an optimizer in the config that is not Adam, or that torch runs."""
    ratio = subject.value(_PATH)
    if subject.stage != 3 or subject.offload("optimizer") == "none" or not subject.optimizer:
        return
    if not isinstance(ratio, (int, float)) or isinstance(ratio, bool) or not 0 <= ratio < 1:
        return
    torch_adam = subject.raw("optimizer.params.torch_adam") is True
    if subject.optimizer in ADAMS and not torch_adam:
        return
    name = f"{subject.raw('optimizer.type')}{' with torch_adam' if torch_adam else ''}"
    message = (
        f"ratio {ratio} works with DeepSpeedCPUAdam only, and the optimizer is {name}: deepspeed.initialize stops; "
        "it must be Adam or AdamW without torch_adam"
    )
    yield Fault(_PATH, message)


RULE = Rule(
    code="DSG309",
    name="offload-ratio-needs-cpu-adam",
    severity=Severity.ERROR,
    what="Only a part of the optimizer is to be offloaded, and the optimizer is not DeepSpeed's CPU Adam.",
    why="`AssertionError: Hybrid Optimizer Only Supports DeepSpeedCPUAdam`, in deepspeed.initialize.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "Lion", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}
}""",
    evidence=("deepspeed/runtime/zero/stage3.py (0.19.8): __init__, the backup optimizer; run with torch_adam",),
    check=check,
)
