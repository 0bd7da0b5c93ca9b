"""An optimizer beside ZenFlow that it cannot step."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import built_optimizer
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.zero_switches import ADAMS, flows
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "optimizer.type"
_WHEN = ("full_warm_up_rounds", "update_interval")


def check(subject: Subject) -> Iterator[Fault]:
    """Another type than Adam, AdamW or Muon beside ZenFlow at stage 1 or 2."""
    if not flows(subject):
        return
    if built_optimizer(subject) is None or subject.optimizer in (*ADAMS, "muon"):
        return
    name = subject.raw(_PATH)
    rounds, every = (subject.value(f"zero_optimization.zenflow.{name}") for name in _WHEN)
    late = not isinstance(every, int) or (isinstance(rounds, int) and rounds > 2 * every)  # "auto" steps later
    when = "a later step" if late else "the first step"
    message = f"ZenFlow steps DeepSpeed's own CPU Adam, which numbers its steps; with {name} {when} stops"
    fix = Fix("write AdamW", (Assign(_PATH, "AdamW"),), safe=False)
    yield Fault(_PATH, message, fix, Severity.WARNING if late else None, on="value")


RULE = Rule(
    code="DSG345",
    name="zenflow-needs-adam",
    severity=Severity.ERROR,
    what="ZenFlow is on with an optimizer other than Adam, AdamW or Muon.",
    why=(
        "ZenFlow passes step_id to the step of the offloaded optimizer, which only DeepSpeed's CPU Adam takes: "
        "`DeepSpeedCPULion.step() got an unexpected keyword argument 'step_id'`."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "Adagrad", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
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
    evidence=("deepspeed/runtime/zenflow/zenflow_stage_1_and_2.py (0.19.8); run with Lion, Adagrad, SGD and RMSprop",),
    check=check,
    shows=("unexpected keyword argument 'step_id'",),
    since="0.17.5",
)
