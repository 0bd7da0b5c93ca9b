"""SuperOffload on an accelerator that is not NVIDIA's."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.zero_switches import on_cuda
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.offload_optimizer.super_offload"


def check(subject: Subject) -> Iterator[Fault]:
    """A super_offload at stage 3 where the accelerator is known and is not "cuda"."""
    if subject.stage != 3 or on_cuda(subject) or subject.value(_PATH) is not True:
        return
    message = (
        f"super_offload runs on NVIDIA GPUs only, and the accelerator is {subject.facts.accelerator}: "
        "deepspeed.initialize stops"
    )
    yield Fault(_PATH, message, Fix("remove super_offload", (Remove(_PATH),), safe=False))


RULE = Rule(
    code="DSG310",
    name="super-offload-needs-cuda",
    severity=Severity.ERROR,
    what="SuperOffload is switched on where there is no NVIDIA GPU.",
    why="`AssertionError: SuperOffload only supports NVIDIA CUDA GPUs`, in deepspeed.initialize.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": true}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}
}""",
    evidence=("deepspeed/runtime/superoffload/superoffload_stage3.py (0.19.8)", "probe O_super_z3"),
    check=check,
    given={"accelerator": "xpu"},
    since="0.18.0",
)
