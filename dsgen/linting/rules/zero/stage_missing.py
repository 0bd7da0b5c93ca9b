"""A section zero_optimization without a stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.stage"


def check(subject: Subject) -> Iterator[Fault]:
    """A section whose map has no stage."""
    section = subject.raw("zero_optimization")
    if not isinstance(section, Mapping) or subject.written(_PATH):
        return
    only_at_3 = any(str(name).startswith(("stage3_", "offload_param")) for name in section)
    stage = 3 if only_at_3 else 2 if section else 0
    fix = Fix(f"write stage: {stage}", (Assign(_PATH, stage),), safe=False)
    message = "zero_optimization has no stage, and DeepSpeed then runs stage 0: nothing is partitioned"
    yield Fault(_PATH, message, fix)


RULE = Rule(
    code="DSG300",
    name="stage-missing",
    severity=Severity.WARNING,
    what="The section zero_optimization does not say which stage.",
    why=(
        "The stage is 0 when it is not written: plain data parallelism with every state on every GPU. DeepSpeed says "
        "nothing; the run is out of memory where ZeRO would fit."
    ),
    example='{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"overlap_comm": true}}',
    instead='{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "overlap_comm": true}}',
    evidence=("deepspeed/runtime/zero/config.py (0.19.8): stage: ZeroStageEnum = 0", "probe T_zero_nostage"),
    check=check,
)
