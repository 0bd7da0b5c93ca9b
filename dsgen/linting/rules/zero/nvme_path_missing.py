"""Offload to NVMe without a path."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Each of the two offloads to "nvme" at stage 3 that has no nvme_path."""
    for what in ("optimizer", "param"):
        path = f"zero_optimization.offload_{what}"
        if subject.stage != 3 or subject.value(f"{path}.device") != "nvme":
            continue
        if subject.value(f"{path}.nvme_path") is None:
            message = (
                f'offload_{what} has device "nvme" and no nvme_path, and DeepSpeed stops in deepspeed.initialize; '
                "it must name a folder on a local disk"
            )
            yield Fault(f"{path}.nvme_path", message)


RULE = Rule(
    code="DSG306",
    name="nvme-path-missing",
    severity=Severity.ERROR,
    what="An offload to NVMe does not say where the disk is.",
    why=(
        "Stage 3 joins the path with the name of a folder: `expected str, bytes or os.PathLike object, not NoneType` "
        'for the optimizer, `"nvme_path" in DeepSpeed Config cannot be None` for the parameters.'
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}}
}""",
    evidence=(
        "deepspeed/runtime/zero/stage3.py (0.19.8): _configure_tensor_swapping",
        "probes O_nvme_z3_nopath, O_nvmeparam_z3_nopath",
    ),
    check=check,
)
