"""ZenFlow's selective optimizer on the CPU without overlapping communication."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.zero_switches import overlaps
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.zenflow.offload"
_OVERLAP = "zero_optimization.overlap_comm"


def check(subject: Subject) -> Iterator[Fault]:
    """zenflow.offload true at stage 1, 2 or 3 while overlap_comm is off."""
    if subject.stage == 0 or subject.value(_PATH) is not True or overlaps(subject) is not False:
        return
    message = "zenflow.offload needs overlap_comm, which is off: deepspeed.initialize stops"
    yield Fault(_PATH, message, Fix("write overlap_comm: true", (Assign(_OVERLAP, True),), safe=False))


RULE = Rule(
    code="DSG342",
    name="zenflow-offload-without-overlap",
    severity=Severity.ERROR,
    what="ZenFlow is to keep its own states on the CPU too, without overlap_comm.",
    why="`AssertionError: offload selective optimizer should be used with overlap_comm`. It is off below stage 3.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 4,
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"},
    "zenflow": {"select_strategy": "step", "select_interval": 8, "update_interval": 4, "offload": true}
  }
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 4,
  "zero_optimization": {
    "stage": 2,
    "overlap_comm": true,
    "offload_optimizer": {"device": "cpu"},
    "zenflow": {"select_strategy": "step", "select_interval": 8, "update_interval": 4, "offload": true}
  }
}""",
    evidence=(
        "deepspeed/runtime/zenflow/zenflow_stage_1_and_2.py and engine_stage3.py (0.19.8)",
        "probe ZF_overlap_no_comm",
    ),
    check=check,
    since="0.17.5",
)
