"""Tensor parallelism over more GPUs than a node has."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.setups import sentence
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "tensor_parallel.autotp_size"


def check(subject: Subject) -> Iterator[Fault]:
    """autotp_size above the GPUs of a node."""
    hardware, size = subject.facts.hardware, subject.value(_PATH)
    if hardware is None or not isinstance(size, int) or isinstance(size, bool) or size <= hardware.gpus_per_node:
        return
    if subject.surface.key(_PATH) is not None:
        yield Fault(
            _PATH,
            f"{sentence(subject, 'autotp-leaves-the-node')}: the all-reduces of every layer then cross the network",
            Fix(f"set it to {hardware.gpus_per_node}", (Assign(_PATH, hardware.gpus_per_node),), safe=False),
        )


RULE = Rule(
    code="DSG812",
    name="tensor-parallel-leaves-the-node",
    severity=Severity.WARNING,
    what="Tensor-parallel groups are larger than a node.",
    why=(
        "Each layer all-reduces its activations four times in a pass, and nothing hides it. Between nodes that is"
        " many times slower than NVLink."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 1, "overlap_comm": true},
  "tensor_parallel": {"autotp_size": 16}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 1, "overlap_comm": true},
  "tensor_parallel": {"autotp_size": 8}
}""",
    evidence=("Megatron-LM (arXiv 2104.04473), section 3.2: tensor parallelism within a node",),
    check=check,
    given={"hardware": "a100-80g", "world_size": 16},
)
