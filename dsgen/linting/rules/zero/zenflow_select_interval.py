"""ZenFlow's intervals that contradict its strategy or each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.linting.rules.batch_sizes import whole
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.zenflow"
_SELECT = f"{_PATH}.select_interval"


def check(subject: Subject) -> Iterator[Fault]:
    """A select_interval beside strategy "auto", none beside another, or one below update_interval."""
    section = subject.raw(_PATH)
    if not isinstance(section, Mapping):
        return
    strategy = section.get("select_strategy", "auto")
    select, update = whole(section.get("select_interval")), whole(section.get("update_interval"))
    if strategy == "auto" and select is not None:
        message = f'select_interval {select} needs select_strategy "step" or "epoch"; beside "auto" DeepSpeed stops'
        yield Fault(_SELECT, message, Fix("remove select_interval", (Remove(_SELECT),), safe=False))
    elif strategy in ("step", "epoch") and section.get("select_interval", "auto") == "auto":
        message = f'select_strategy "{strategy}" needs a number as select_interval: deepspeed.initialize stops'
        yield Fault(_SELECT, message)
    elif strategy == "step" and select is not None and update is not None and 0 != select < update:
        message = f"select_interval {select} is below update_interval {update}: deepspeed.initialize stops"
        fix = Fix(f"write select_interval: {update}", (Assign(_SELECT, update),), safe=False)
        yield Fault(_SELECT, message, fix, on="value")


RULE = Rule(
    code="DSG341",
    name="zenflow-select-interval",
    severity=Severity.ERROR,
    what="ZenFlow's select_interval does not go with its strategy or with update_interval.",
    why=(
        'With the strategy "auto", the default, a number raises (a Warning, raised as an exception); with "step" and '
        '"epoch" a number is needed; and columns must not be chosen anew more often than the others are updated: '
        "`Select interval must be greater or equal to update interval`."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 4,
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"},
    "zenflow": {"select_interval": 8, "update_interval": 4}
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
        "deepspeed/runtime/zenflow/engine.py (0.19.8): configure_zenflow",
        'probes ZF_z2_interval_auto, ZF_z2_sel_lt_upd; run with "step" alone',
    ),
    check=check,
    since="0.17.5",
)
