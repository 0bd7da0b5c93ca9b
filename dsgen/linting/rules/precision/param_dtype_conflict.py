"""data_types.param_dtype that is not the dtype of the enabled mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.linting.rules.dtypes import DTYPES, model_dtype
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The two, where both are known."""
    path = "data_types.param_dtype"
    wanted, model = DTYPES.get(str(subject.raw(path))), model_dtype(subject)
    if wanted is None or model is None or wanted == model:
        return
    switch = wanted in ("fp16", "bf16") and model == "fp32" and not subject.written(f"{wanted}.enabled")
    fix = Fix("remove param_dtype", (Remove(path),), safe=False)
    if switch and isinstance(subject.raw(wanted) or {}, Mapping):
        fix = Fix(f"switch {wanted} on", (Assign(f"{wanted}.enabled", True),), safe=False)
    said = f"param_dtype is {wanted}, the model is in {model}, and deepspeed.initialize stops; both must be the same"
    yield Fault(path, said, fix, on="value")


RULE = Rule(
    code="DSG612",
    name="param-dtype-conflict",
    severity=Severity.ERROR,
    what="data_types.param_dtype and the switches of fp16 and bf16 disagree.",
    why=("deepspeed.initialize stops: the switches decide the dtype of the model, and param_dtype may only repeat it."),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "data_types": {"param_dtype": "bf16"}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true},
  "data_types": {"param_dtype": "bf16"}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _assert_valid_mixed_precision_config",
        "probe P_param_dtype_conflict",
    ),
    check=check,
    since="0.19.2",
)
