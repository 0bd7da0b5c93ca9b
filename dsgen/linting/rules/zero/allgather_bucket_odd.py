"""An odd number of elements in the allgather bucket."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.batch_sizes import whole
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.zero_switches import certain
from dsgen.linting.setups import refused
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.allgather_bucket_size"


def check(subject: Subject) -> Iterator[Fault]:
    """An odd allgather_bucket_size at stage 1 or 2, except where BF16_Optimizer runs."""
    why, size = refused(subject, "odd-allgather-bucket", precision=certain(subject)), whole(subject.value(_PATH))
    if why is not None and size is not None:
        yield Fault(_PATH, why, Fix(f"write {size + 1}", (Assign(_PATH, size + 1),)), on="value")


RULE = Rule(
    code="DSG331",
    name="allgather-bucket-odd",
    severity=Severity.ERROR,
    what="allgather_bucket_size is an odd number.",
    why=(
        "Stages 1 and 2 align their buckets to 4 bytes, two elements of 16 bits: `allgather_bucket_size must be a "
        "multiple of nccl_start_alignment_factor, 2`."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "allgather_bucket_size": 500000001}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "allgather_bucket_size": 500000000}
}""",
    evidence=("deepspeed/runtime/zero/stage_1_and_2.py (0.19.8): __init__", "probe Z_allgather_odd"),
    check=check,
)
