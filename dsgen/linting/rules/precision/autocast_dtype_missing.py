"""torch_autocast without a dtype."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.values import counts_as_true
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The missing key."""
    path = "torch_autocast.dtype"
    if counts_as_true(subject, "torch_autocast.enabled") and not subject.written(path):
        fix = Fix("write bfloat16", (Assign(path, "bfloat16"),), safe=False)
        said = "torch_autocast has no dtype, and torch takes the device's: float16 on NVIDIA GPUs, bfloat16 on CPUs"
        yield Fault("torch_autocast", said, fix)


RULE = Rule(
    code="DSG616",
    name="autocast-dtype-missing",
    severity=Severity.WARNING,
    what="torch_autocast is on and does not say in which dtype.",
    why=(
        "torch then takes the device's own default: float16 on NVIDIA GPUs, where gradients need a loss scale, "
        "and bfloat16 on CPUs. The same file trains differently on another machine."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "torch_autocast": {"enabled": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "torch_autocast": {"enabled": true, "dtype": "bfloat16"}
}""",
    evidence=(
        "deepspeed/runtime/config.py (0.19.8): get_torch_autocast_dtype",
        "probes T_autocast_nodtype, P_autocast_nodtype_2",
    ),
    check=check,
    since="0.17.2",
)
