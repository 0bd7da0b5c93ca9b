"""Offload to a host with too little RAM."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.described import described
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity
from dsgen.shapes.units import gib

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """What is offloaded by all GPUs of a node, against its RAM."""
    run = described(subject)
    if run is None or "none" == run.strategy.offload_optimizer == run.strategy.offload_param:
        return
    from dsgen.memory import host_limit

    there = run.job.hardware.host_memory_bytes
    if run.host_bytes <= host_limit(run.job.hardware):
        return
    what = "optimizer" if run.strategy.offload_optimizer != "none" else "param"
    yield Fault(
        f"zero_optimization.offload_{what}",
        f"offload takes {gib(run.host_bytes)} GiB in the RAM of each node, and a node has {gib(there)}",
        severity=Severity.ERROR if run.host_bytes > there else None,
    )


RULE = Rule(
    code="DSG801",
    name="host-memory-too-small",
    severity=Severity.WARNING,
    what="What is offloaded does not fit in the node's RAM.",
    why=(
        "Every GPU of a node keeps its share of master weights, gradients and Adam's moments in the same RAM: 16 "
        "bytes for each parameter of the share, plus the 16-bit copies in page-locked memory. The kernel kills "
        "the run when they do not fit. It is an error where they are more than the node has, a warning where they"
        " leave nothing for the system."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}}
}""",
    evidence=(
        ("dsgen/memory/parts.py; deepspeed/runtime/zero/stage3.py (0.19.8), the pinned buffers of the sub-groups"),
    ),
    check=check,
    given={"hardware": "a100-40g", "model": "70b", "world_size": 8},
)
