"""ZenFlow at a stage, or beside a setting, where it cannot run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.zero_switches import on_cuda, settled
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.zenflow"
_OFFLOAD = "zero_optimization.offload_optimizer.device"


def check(subject: Subject) -> Iterator[Fault]:
    """A section zenflow without offload at stage 1 or 2, at stage 0, or at stage 3 without CUDA."""
    if not isinstance(subject.raw(_PATH), Mapping) or not settled(subject):
        return
    if subject.stage == 0:
        message = "ZenFlow needs ZeRO; at stage 0 the first step stops, for no optimizer of ZeRO is there"
        fix = Fix("write stage: 2", (Assign("zero_optimization.stage", 2),), safe=False)
        yield Fault(_PATH, message, fix)
    elif subject.stage == 3:
        if not on_cuda(subject):
            message = f"ZenFlow at stage 3 calls CUDA, and the accelerator is {subject.facts.accelerator}: it stops"
            yield Fault(_PATH, message)
    elif subject.offload("optimizer") == "none" and not subject.is_open(_OFFLOAD):
        message = "ZenFlow needs the optimizer on the CPU, and nothing is offloaded: deepspeed.initialize stops"
        fix = Fix("write offload_optimizer.device: cpu", (Assign(_OFFLOAD, "cpu"),), safe=False)
        yield Fault(_PATH, message, fix)


RULE = Rule(
    code="DSG340",
    name="zenflow-without-offload",
    severity=Severity.ERROR,
    what="ZenFlow is asked for without what it builds on: ZeRO with the optimizer on the CPU.",
    why=(
        "ZenFlow updates the important gradients on the GPU at once and the others on the CPU later. Without offload "
        "stages 1 and 2 raise `Zenflow must be used with cpu offload`; stage 0 fails in the first step (`no attribute "
        "'reduce_gradients'`); stage 3 calls torch.cuda."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 4,
  "zero_optimization": {
    "stage": 2,
    "zenflow": {"select_strategy": "step", "select_interval": 8, "update_interval": 4}
  }
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 4,
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"},
    "zenflow": {"select_strategy": "step", "select_interval": 8, "update_interval": 4}
  }
}""",
    evidence=(
        "deepspeed/runtime/zenflow/zenflow_stage_1_and_2.py (0.19.8): _configure_zenflow",
        "probes ZF_nooffload, ZF_z0, ZF_z3; run at stage 0 in fp32",
    ),
    check=check,
    shows=("Torch not compiled with CUDA enabled", "index out of range in self"),
    since="0.17.5",
)
