"""Optimizer offload to NVMe at a stage that only knows the CPU."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.setups import refused
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Edit, Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_SECTION = "zero_optimization.offload_optimizer"
_ONLY_NVME = ("nvme_path", "buffer_count", "pipeline_read", "pipeline_write", "fast_init")


def check(subject: Subject) -> Iterator[Fault]:
    """An offload_optimizer to "nvme" at stage 1 or 2."""
    why = refused(subject, "nvme-below-stage-3")
    if why is None or subject.stage == 0 or subject.value(f"{_SECTION}.device") != "nvme":
        return
    idle = [name for name in _ONLY_NVME if subject.written(f"{_SECTION}.{name}")]
    edits: tuple[Edit, ...] = (Assign(f"{_SECTION}.device", "cpu"), *(Remove(f"{_SECTION}.{name}") for name in idle))
    dropped = f" and remove {', '.join(idle)}" if idle else ""
    yield Fault(f"{_SECTION}.device", why, Fix(f"write cpu{dropped}, which is what it does", edits), on="value")


RULE = Rule(
    code="DSG305",
    name="nvme-below-stage-3",
    severity=Severity.WARNING,
    what="The optimizer is to go to NVMe, but the stage is 1 or 2.",
    why=(
        "Stages 1 and 2 treat every device but none as the CPU. The disk is never touched, the path is not even "
        "needed, and the host needs memory for all optimizer states of its GPUs."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}}
}""",
    evidence=(
        "deepspeed/runtime/zero/stage_1_and_2.py (0.19.8): cpu_offload is any device but none",
        "probes O_nvme_z2_path, O_nvme_z2_nopath",
    ),
    check=check,
    shows=("optimizer state place",),
)
