"""A 16-bit dtype that the GPU has no units for."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.setups import sentence
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity
from dsgen.shapes.profiles import Hardware

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """bf16 or fp16 switched on where the profile's peak of it is 0."""
    hardware = subject.facts.hardware
    if hardware is None or hardware.vendor == "cpu":  # on a CPU DeepSpeed has its own rules for dtypes
        return
    for dtype, other in (("bf16", "fp16"), ("fp16", "bf16")):
        path = f"{dtype}.enabled"
        if subject.on(dtype) and not _peak(hardware, dtype):
            edits = (Assign(path, False), Assign(f"{other}.enabled", True))
            fix = Fix(f"use {other}", edits, safe=False) if _peak(hardware, other) else None
            yield Fault(path, sentence(subject, "no-16-bit-units", precision=dtype), fix)


def _peak(hardware: Hardware, dtype: str) -> float:
    return hardware.bf16_flops_per_second if dtype == "bf16" else hardware.fp16_flops_per_second


RULE = Rule(
    code="DSG803",
    name="dtype-not-in-hardware",
    severity=Severity.WARNING,
    what="The config trains in a dtype that the GPU does not compute in.",
    why=(
        "V100, T4 and older have tensor cores for fp16 alone. DeepSpeed accepts bf16 there, because torch counts "
        "emulation as support, and every matrix product goes through fp32."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "fp16": {"enabled": true}
}""",
    evidence=(
        (
            "torch.cuda.is_bf16_supported(including_emulation=True), which DeepSpeed asks "
            "(accelerator/cuda_accelerator.py, 0.19.8)"
        ),
        "NVIDIA V100 data sheet: no bf16",
    ),
    check=check,
    given={"hardware": "v100-16g"},
)
