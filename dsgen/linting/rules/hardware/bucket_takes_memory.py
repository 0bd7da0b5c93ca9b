"""Buckets that take a large part of the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity
from dsgen.shapes.units import gib

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.reduce_bucket_size"
_SHARE = 0.10  # of the GPU; the planner keeps a bucket at 2 %
_OWN_SHARE = 0.02


def check(subject: Subject) -> Iterator[Fault]:
    """The reduce buckets in bytes against the GPU's memory."""
    hardware, elements = subject.facts.hardware, subject.value(_PATH)
    if hardware is None or not subject.stage or type(elements) is not int or elements >= 2**63:
        return
    wide = subject.value("bf16.enabled") is False and subject.value("fp16.enabled") is False
    width = 4 if wide and subject.target.name == "deepspeed" else 2
    copies = 2 if subject.stage < 3 and subject.value("zero_optimization.overlap_comm") is True else 1
    size, there = elements * width * copies, hardware.usable_memory_bytes
    if size <= _SHARE * there:
        return
    better = int(_OWN_SHARE * there / width) // 10**7 * 10**7
    fix = Fix(f"set it to {better}", (Assign(_PATH, better),), safe=False) if 0 < better < elements else None
    two = "two buckets, because of overlap_comm, take" if copies == 2 else "the bucket takes"
    yield Fault(
        _PATH,
        f"reduce_bucket_size counts elements, not bytes: with {elements:,} of {width} bytes {two} {gib(size)} GiB, "
        f"{min(size / there, 99):.0%} of the GPU",
        fix,
    )


RULE = Rule(
    code="DSG807",
    name="bucket-takes-memory",
    severity=Severity.WARNING,
    what="The buffers in which gradients are collected take more than a tenth of the GPU.",
    why=(
        'reduce_bucket_size is a number of elements: "500 MB" is 1 GB in bf16 and 2 GB with overlap_comm below '
        "stage 3. Buckets above some 100 MB make no link faster."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 500000000}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 100000000}
}""",
    evidence=(
        (
            "deepspeed/runtime/zero/stage_1_and_2.py (0.19.8): one ipg buffer of reduce_bucket_size elements, two "
            "with overlap_comm"
        ),
    ),
    check=check,
    given={"hardware": "t4-16g"},
)
