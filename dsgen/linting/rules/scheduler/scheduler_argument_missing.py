"""A schedule without an argument that it cannot do without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.linting.rules.arguments import arguments, built_schedule
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every missing argument, where there are params at all."""
    built = built_schedule(subject)
    if built is None or not isinstance(subject.raw("scheduler.params"), Mapping):
        return
    written = arguments(subject, "scheduler")
    for name in built.required:
        if name not in written:
            said = f"{built.title} stops in deepspeed.initialize without {name}, which has no default"
            yield Fault(f"scheduler.params.{name}", said)


RULE = Rule(
    code="DSG554",
    name="scheduler-argument-missing",
    severity=Severity.ERROR,
    what="scheduler.params lacks an argument that has no default.",
    why=(
        "deepspeed.initialize stops with a TypeError: WarmupDecayLR and WarmupCosineLR need total_num_steps, "
        "OneCycle needs cycle_min_lr and cycle_max_lr."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": 0.0001}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {
    "type": "WarmupDecayLR",
    "params": {"warmup_max_lr": 0.0001, "total_num_steps": 10000}
  }
}""",
    evidence=(
        "deepspeed/runtime/lr_schedules.py (0.19.8): the signatures",
        "probe A_sched_decay_nototal",
    ),
    check=check,
)
