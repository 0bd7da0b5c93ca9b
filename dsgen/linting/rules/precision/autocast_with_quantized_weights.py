"""torch_autocast together with zero_quantized_weights."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.values import counts_as_true
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_STAGE = 3  # below it quantized weights do nothing


def check(subject: Subject) -> Iterator[Fault]:
    """The two switches."""
    path = "zero_optimization.zero_quantized_weights"
    if counts_as_true(subject, "torch_autocast.enabled") and subject.value(path) is True:
        fix = Fix("write false", (Assign(path, False),), safe=subject.stage != _STAGE)
        said = "DeepSpeed refuses zero_quantized_weights together with torch_autocast; one of them must be off"
        yield Fault(path, said, fix)


RULE = Rule(
    code="DSG620",
    name="autocast-with-quantized-weights",
    severity=Severity.ERROR,
    what="torch_autocast and zero_quantized_weights are both on.",
    why=(
        'deepspeed.initialize stops with "Cannot enable both torch autocast and zero quantized weights", at any stage.'
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 3, "zero_quantized_weights": true},
  "torch_autocast": {"enabled": true, "dtype": "bfloat16"}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 3},
  "torch_autocast": {"enabled": true, "dtype": "bfloat16"}
}""",
    evidence=(
        "deepspeed/runtime/torch_autocast.py (0.19.8): _validate_auto_cast_settings",
        "DeepSpeed 0.19.8 run with both at stages 0 and 2",
    ),
    check=check,
    since="0.17.2",
)
