"""The word "auto" in a config that no Hugging Face program fills in."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from dsgen.linting.rules.autos import autos, outcome
from dsgen.linting.rules.batch_sizes import said_beside
from dsgen.linting.rules.rule import OF_ANOTHER_TYPE, Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every "auto" that reaches DeepSpeed, where the program that loads the config knows the word nowhere."""
    if not subject.target.takes_every_auto:
        return
    for path, key in autos(subject):
        filled = outcome(subject, path, key)
        if filled is not None and path not in subject.target.refused:
            message = f'{path} is "auto", which only Hugging Face programs fill in; {filled.made}'
            severity, fix = filled.severity, filled.fix
            if subject.facts.launched or said_beside(subject):  # what is started may hand it to a Trainer
                severity = min(severity, Severity.WARNING)
                message = f"{message}, unless the program that is started fills it in"
                fix = attrs.evolve(fix, safe=False) if fix is not None else None
            yield Fault(path, message, fix, severity, on="value")


RULE = Rule(
    code="DSG900",
    name="auto-outside-hugging-face",
    severity=Severity.WARNING,
    what='A config for plain DeepSpeed or Lightning says "auto".',
    why=(
        '"auto" is a word of the Hugging Face Trainer and of Accelerate, which put a number in its place. DeepSpeed '
        "drops it in its strict sections without a word, so that the default holds: fp32 for bf16.enabled, stage 0, "
        "no offload, buckets of 500,000,000 elements. At the batch keys, in the optimizer and in the schedule it is a "
        "TypeError, with gradient_clipping only in the first step; a switch elsewhere counts as true."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "deepspeed/runtime/config_utils.py (0.19.8): DeepSpeedConfigModel drops keys whose value is auto",
        "DeepSpeed 0.19.8 run with the word at every key; probes T_bf16_enabled_auto, T_micro_auto, T_clip_auto",
    ),
    check=check,
    shows=(*OF_ANOTHER_TYPE, "incompatible function arguments", "'auto'"),
    given={"target": "deepspeed"},
)
