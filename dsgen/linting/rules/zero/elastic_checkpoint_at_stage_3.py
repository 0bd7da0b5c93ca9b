"""Elastic checkpoints at stage 3."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.elastic_checkpoint"


def check(subject: Subject) -> Iterator[Fault]:
    """elastic_checkpoint true at stage 3."""
    if subject.stage == 3 and subject.value(_PATH) is True:
        message = "elastic_checkpoint does nothing at stage 3: another number of GPUs needs a universal checkpoint"
        yield Fault(_PATH, message, Fix("remove elastic_checkpoint", (Remove(_PATH),)))


RULE = Rule(
    code="DSG350",
    name="elastic-checkpoint-at-stage-3",
    severity=Severity.WARNING,
    what="Checkpoints at stage 3 are to load on another number of GPUs, which this key no longer does.",
    why=(
        "DeepSpeed logs that elastic checkpoints of ZeRO-3 are no longer supported, and writes plain ones. To change "
        "the number of GPUs, convert with ds_to_universal.py and set checkpoint.load_universal."
    ),
    example='{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "elastic_checkpoint": true}}',
    instead='{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}',
    evidence=("deepspeed/runtime/zero/config.py (0.19.8): elastic_checkpoint_deprecated", "probe Z_elastic_z3"),
    check=check,
)
