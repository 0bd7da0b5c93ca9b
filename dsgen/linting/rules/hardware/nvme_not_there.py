"""Offload to NVMe on hardware that names no drive, or too small a one."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.described import described
from dsgen.linting.rules.rule import Rule
from dsgen.linting.setups import sentence
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity
from dsgen.shapes.units import gib

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Each nvme device at stage 3, where DeepSpeed uses it."""
    hardware = subject.facts.hardware
    if hardware is None or subject.stage != 3:
        return
    run = described(subject)
    need = run.memory.nvme.peak_bytes if run is not None else 0
    for what in ("optimizer", "param"):
        path = f"zero_optimization.offload_{what}.device"
        if subject.offload(what) != "nvme" or not subject.written(path):
            continue
        if not hardware.nvme_capacity_bytes:
            yield Fault(path, f"{sentence(subject, 'no-nvme')}; set hardware.nvme_capacity if there is one")
        elif need > hardware.nvme_capacity_bytes:
            there = gib(hardware.nvme_capacity_bytes)
            yield Fault(path, f"swapping takes {gib(need)} GiB on the drives of each node, and they hold {there}")


RULE = Rule(
    code="DSG802",
    name="nvme-not-there",
    severity=Severity.WARNING,
    what="The config swaps to NVMe, and the hardware has none, or less than it takes.",
    why=(
        "DeepSpeed writes to whatever `nvme_path` names. On a network file system or a cloud disk a step takes minutes."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}
}""",
    evidence=("the field nvme_capacity of the hardware profile",),
    check=check,
    given={"hardware": "v100-16g"},
)
