"""A secondary partition that is larger than a node."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.zero_hpz_partition_size"


def check(subject: Subject) -> Iterator[Fault]:
    """zero_hpz_partition_size above the GPUs of a node, at stage 3."""
    hardware, size = subject.facts.hardware, subject.value(_PATH)
    if hardware is None or subject.stage != 3 or not isinstance(size, int) or isinstance(size, bool):
        return
    if size > hardware.gpus_per_node:
        yield Fault(
            _PATH,
            f"zero_hpz_partition_size is {size} and a node has {hardware.gpus_per_node} GPUs: the gathers that it is "
            f"to keep within a node cross the network",
            Fix(f"set it to {hardware.gpus_per_node}", (Assign(_PATH, hardware.gpus_per_node),), safe=False),
        )


RULE = Rule(
    code="DSG811",
    name="hpz-leaves-the-node",
    severity=Severity.WARNING,
    what="zero_hpz_partition_size is larger than a node.",
    why=(
        "hpZ keeps a second copy of the weights, partitioned among neighbouring ranks, so that backward gathers "
        "over NVLink. It is meant to be the number of GPUs in a node."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 16}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}
}""",
    evidence=("ZeRO++ (arXiv 2306.10209), section 3.2; deepspeed/utils/groups.py (0.19.8)",),
    check=check,
    given={"hardware": "a100-80g", "world_size": 16},
)
