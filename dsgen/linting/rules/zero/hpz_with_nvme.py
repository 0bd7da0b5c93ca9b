"""A second copy of the parameters in each node while the parameters themselves lie on NVMe."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.setups import refused
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.zero_hpz_partition_size"


def check(subject: Subject) -> Iterator[Fault]:
    """A group size above 1 at stage 3 beside offload_param to NVMe."""
    if why := refused(subject, "hpz-with-nvme"):
        yield Fault(_PATH, why, Fix("write 1, which is off", (Assign(_PATH, 1),), safe=False), on="value")


RULE = Rule(
    code="DSG323",
    name="hpz-with-nvme",
    severity=Severity.ERROR,
    what="zero_hpz_partition_size is above 1 and offload_param goes to NVMe.",
    why=(
        "hpZ keeps a second copy of the parameters in every node. DeepSpeed allocates it on the device of "
        "offload_param, and torch refuses a device of the name nvme with a RuntimeError."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {
    "stage": 3,
    "zero_hpz_partition_size": 2,
    "offload_param": {"device": "nvme", "nvme_path": "/local_nvme"}
  }
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {
    "stage": 3,
    "zero_hpz_partition_size": 2,
    "offload_param": {"device": "cpu"}
  }
}""",
    evidence=(
        "deepspeed/runtime/zero/partition_parameters.py (0.19.8): _partition_param_sec",
        "DeepSpeed 0.19.8 run with both",
    ),
    check=check,
    given={"world_size": 2},
)
