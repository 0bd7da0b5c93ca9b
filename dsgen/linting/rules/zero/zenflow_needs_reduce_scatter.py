"""ZenFlow without reduce_scatter."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.zero_switches import flows
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.reduce_scatter"


def check(subject: Subject) -> Iterator[Fault]:
    """reduce_scatter false beside ZenFlow at stage 1 or 2."""
    if flows(subject) and subject.value(_PATH) is False:
        message = "ZenFlow does not run with reduce_scatter: false: the first step stops with a TypeError"
        yield Fault(_PATH, message, Fix("remove reduce_scatter: true is the default", (Remove(_PATH),), safe=False))


RULE = Rule(
    code="DSG346",
    name="zenflow-needs-reduce-scatter",
    severity=Severity.ERROR,
    what="reduce_scatter is false beside ZenFlow.",
    why=(
        "ZenFlow reduces whole gradients with a call that its base class has changed since: "
        "`gradient_reduction_w_predivide() missing 1 required positional argument: 'communication_data_type'`."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "reduce_scatter": false,
    "offload_optimizer": {"device": "cpu"},
    "zenflow": {"select_strategy": "step", "select_interval": 8, "update_interval": 4}
  }
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"},
    "zenflow": {"select_strategy": "step", "select_interval": 8, "update_interval": 4}
  }
}""",
    evidence=("deepspeed/runtime/zenflow/zenflow_stage_1_and_2.py (0.19.8): average_tensor; run at stages 1 and 2",),
    check=check,
    since="0.17.5",
)
