"""fp16 and bf16 both switched on."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The two switches; bf16 stays, which needs no loss scale."""
    if subject.on("fp16") and subject.on("bf16"):
        said = "fp16 and bf16 are both enabled, and the parse stops; only one of them may be"
        yield Fault("fp16.enabled", said, Fix("switch fp16 off", (Assign("fp16.enabled", False),), safe=False))


RULE = Rule(
    code="DSG600",
    name="fp16-and-bf16",
    severity=Severity.ERROR,
    what="fp16.enabled and bf16.enabled are both true.",
    why=(
        'The parse stops with "bfloat16 and fp16 modes cannot be simultaneously enabled". Files that serve '
        "several GPUs carry both sections; one of them must say false."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "fp16": {"enabled": true},
  "bf16": {"enabled": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "fp16": {"enabled": false},
  "bf16": {"enabled": true}
}""",
    evidence=(
        "deepspeed/runtime/config.py (0.19.8): _initialize_params",
        "probe P_fp16_bf16",
    ),
    check=check,
)
