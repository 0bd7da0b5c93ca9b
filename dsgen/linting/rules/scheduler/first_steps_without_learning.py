"""A warm-up that begins at a learning rate of 0."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import arguments, built_schedule, number
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The schedule, where its first rate is 0."""
    built = built_schedule(subject)
    if built is None or "warmup_num_steps" not in built.defaults:
        return
    name = "warmup_min_lr" if "warmup_min_lr" in built.defaults else "warmup_min_ratio"
    if number(arguments(subject, "scheduler").get(name, 0)) == 0:
        yield Fault("scheduler.type", f"{built.title} runs the first two steps at learning rate 0", on="value")


RULE = Rule(
    code="DSG561",
    name="first-steps-without-learning",
    severity=Severity.INFO,
    what="The warm-up starts at 0.",
    why=(
        "The first two optimizer steps run at learning rate 0: the schedule starts before its step 0, and both "
        "are 0 there. In a long run that costs nothing; a smoke test of two steps sees no change of the loss."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100, "warmup_min_lr": 1e-06}}
}""",
    evidence=(
        "deepspeed/runtime/lr_schedules.py (0.19.8): get_lr",
        "DeepSpeed 0.19.8 run: rates 0, 0, 0.25, ... of 0.5 with 4 steps of warm-up",
    ),
    check=check,
)
