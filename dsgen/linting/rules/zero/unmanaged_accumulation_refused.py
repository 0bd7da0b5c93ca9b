"""Accumulation left to the program where DeepSpeed must manage it."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.zero_switches import overlaps, settled
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_KEY = "managed_gradient_accumulation"
_OVERLAP = "zero_optimization.overlap_comm"


def check(subject: Subject) -> Iterator[Fault]:
    """managed_gradient_accumulation false beside overlap_comm below stage 2, or beside DeepCompile."""
    if subject.surface.key(_KEY) is None or subject.value(_KEY) or not settled(subject):
        return
    if subject.stage < 2 and overlaps(subject):
        fix = Fix("write overlap_comm: false", (Assign(_OVERLAP, False),), safe=False)
        why = f"does not go with overlap_comm at stage {subject.stage}"
    elif subject.value("compile.deepcompile") is True:
        fix = Fix("write compile.deepcompile: false", (Assign("compile.deepcompile", False),), safe=False)
        why = "does not go with DeepCompile"
    else:
        return
    yield Fault(_KEY, f"{_KEY}: false {why}: deepspeed.initialize stops", fix)


RULE = Rule(
    code="DSG335",
    name="unmanaged-accumulation-refused",
    severity=Severity.ERROR,
    what="The program is to decide when to step, beside a setting that must know it beforehand.",
    why=(
        "With managed_gradient_accumulation: false every backward may be the last one before a step. Overlapping "
        "reduction below stage 2 and DeepCompile's graphs do not work so, and DeepSpeed asserts it."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "managed_gradient_accumulation": false,
  "zero_optimization": {"stage": 1, "overlap_comm": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "managed_gradient_accumulation": false,
  "zero_optimization": {"stage": 2, "overlap_comm": true}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _do_sanity_check",
        "probe Z_unmanaged_z1_overlap; run at stage 0 and with DeepCompile",
    ),
    check=check,
    since="0.19.4",
)
