"""The first implementation of stage 1."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.zero_switches import wrapped_for_bf16
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.legacy_stage1"


def check(subject: Subject) -> Iterator[Fault]:
    """legacy_stage1 true at stage 1, 2 or 3, except where BF16_Optimizer runs."""
    if subject.stage == 0 or subject.value(_PATH) is not True or wrapped_for_bf16(subject):
        return
    message = "legacy_stage1 asks for code that DeepSpeed dropped in 0.5.9: deepspeed.initialize stops"
    yield Fault(_PATH, message, Fix("remove legacy_stage1", (Remove(_PATH),)))


RULE = Rule(
    code="DSG334",
    name="legacy-stage-1",
    severity=Severity.ERROR,
    what="legacy_stage1 is true.",
    why="`Exception: The deprecated version of ZeRO Stage 1 is not supported in deepspeed >= 0.5.9`, at every stage.",
    example='{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1, "legacy_stage1": true}}',
    instead='{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}}',
    evidence=("deepspeed/runtime/engine.py (0.19.8): _configure_zero_optimizer", "probe Z_legacy1"),
    check=check,
    about_versions=True,
)
