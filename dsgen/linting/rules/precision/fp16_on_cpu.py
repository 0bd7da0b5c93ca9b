"""fp16 on an accelerator that has none."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The switch, where the accelerator is known to be the CPU."""
    if subject.facts.accelerator == "cpu" and subject.on("fp16") and not subject.on("bf16"):
        said = "fp16 is on, the accelerator is the CPU, and deepspeed.initialize stops; bf16 works there"
        yield Fault("fp16.enabled", said)


RULE = Rule(
    code="DSG603",
    name="fp16-on-cpu",
    severity=Severity.ERROR,
    what="fp16 is on and the accelerator is the CPU.",
    why='deepspeed.initialize stops with "Type fp16 is not supported on your device". bf16 works there.',
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "fp16": {"enabled": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _do_sanity_check",
        "probes P_fp16_z0, P_fp16_z2, P_fp16_z3",
    ),
    check=check,
    given={"accelerator": "cpu"},
)
