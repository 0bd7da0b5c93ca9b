"""data_types.keep_in_fp32_modules that is no list of names."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The value, where it is something else."""
    path = "data_types.keep_in_fp32_modules"
    value = subject.raw(path)
    if not subject.written(path) or value == "auto":
        return
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        fix = Fix("make it a list", (Assign(path, [value]),)) if isinstance(value, str) else None
        said = f"keep_in_fp32_modules is {say(value)}, and the parse stops; it must be a list of name patterns or auto"
        yield Fault(path, said, fix, on="value")


RULE = Rule(
    code="DSG613",
    name="keep-in-fp32-not-a-list",
    severity=Severity.ERROR,
    what="data_types.keep_in_fp32_modules is neither auto nor a list of texts.",
    why="The parse stops with a DeepSpeedConfigError; null is refused as well.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true},
  "data_types": {"keep_in_fp32_modules": "router"}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true},
  "data_types": {"keep_in_fp32_modules": ["router"]}
}""",
    evidence=(
        "deepspeed/runtime/config.py (0.19.8): _initialize_params",
        "probe P_keepfp32_bad",
    ),
    check=check,
    since="0.19.8",
)
