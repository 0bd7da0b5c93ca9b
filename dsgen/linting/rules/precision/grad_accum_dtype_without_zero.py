"""A dtype for gradients other than the model's, without ZeRO."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.dtypes import DTYPES, builds_optimizer, model_dtype
from dsgen.linting.rules.rule import Rule
from dsgen.linting.setups import refused
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_CODES = ("sums-at-stage-0", "fp32-sums-at-stage-0", "bf16-sums-at-stage-0")  # of one pair of dtypes only one holds


def check(subject: Subject) -> Iterator[Fault]:
    """The two dtypes, where both are known."""
    path = "data_types.grad_accum_dtype"
    wanted, model = DTYPES.get(str(subject.raw(path))), model_dtype(subject)
    if wanted is None or model is None or not builds_optimizer(subject):
        return
    for why in (refused(subject, code, precision=model) for code in _CODES):
        if why is not None:
            yield Fault(path, why, Fix("remove grad_accum_dtype", (Remove(path),), safe=False), on="value")


RULE = Rule(
    code="DSG610",
    name="grad-accum-dtype-without-zero",
    severity=Severity.ERROR,
    what="data_types.grad_accum_dtype differs from the dtype of the model at stage 0.",
    why=(
        "Without ZeRO DeepSpeed has no wrapper for the mix: deepspeed.initialize stops with NotImplementedError. "
        "bf16 with fp32 works before 0.18.6 without ZeRO and at stages 1 to 3 always."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 0},
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "fp32"}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 1},
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "fp32"}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _do_optimizer_sanity_check",
        "probes P_gad_fp32_bf16_z0, P_gad_bf16_fp32model_z0, F16p_gad32_z0",
    ),
    check=check,
)
