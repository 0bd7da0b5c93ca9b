"""fp16 on a GPU that computes in bf16 as fast."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """fp16 switched on where the hardware has bf16."""
    hardware = subject.facts.hardware
    if hardware is not None and hardware.vendor != "cpu" and hardware.bf16_flops_per_second and subject.on("fp16"):
        yield Fault(
            "fp16.enabled",
            "this GPU computes in bf16 as fast as in fp16, and bf16 needs no loss scale",
            Fix("use bf16", (Assign("fp16.enabled", False), Assign("bf16.enabled", True)), safe=False),
        )


RULE = Rule(
    code="DSG804",
    name="fp16-where-bf16-is",
    severity=Severity.INFO,
    what="The config trains in fp16 on hardware with bf16.",
    why=(
        "bf16 has the range of fp32: no overflow, no loss scale, no skipped steps. A model that was trained in "
        "fp16 may still want it."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "fp16": {"enabled": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true}
}""",
    evidence=("NVIDIA A100 data sheet: 312 TFLOP/s in either",),
    check=check,
    given={"hardware": "a100-40g"},
)
