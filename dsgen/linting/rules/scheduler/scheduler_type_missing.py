"""A section scheduler that does not say which schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Move, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The section without a type; the key `name` where that was meant."""
    section = subject.raw("scheduler")
    if not isinstance(section, Mapping) or section.get("type") is not None:
        return
    if isinstance(section.get("name"), str) and "type" not in section:
        fix = Fix("rename to type", (Move("scheduler.name", "scheduler.type"),))
        said = "scheduler.name is not read, so DeepSpeed builds no schedule; it must say type"
        yield Fault("scheduler.name", said, fix)
    else:
        said = "scheduler has no type, so DeepSpeed ignores it and keeps the learning rate constant"
        where = "scheduler.type" if "type" in section else "scheduler"
        yield Fault(where, said, severity=Severity.INFO if not section else None)


RULE = Rule(
    code="DSG551",
    name="scheduler-type-missing",
    severity=Severity.WARNING,
    what="The section scheduler has no type.",
    why=(
        "Without a type DeepSpeed builds no schedule and says nothing: the learning rate stays where it is. "
        "`name` is not read."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"name": "WarmupLR", "params": {"warmup_num_steps": 100}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}
}""",
    evidence=(
        "deepspeed/runtime/config.py (0.19.8): get_scheduler_name",
        "DeepSpeed 0.19.8 run with name, null and neither",
    ),
    check=check,
    shows=(r"never reads: .*scheduler\.",),
)
