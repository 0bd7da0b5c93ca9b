"""An argument of the schedule that stands beside params instead of in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Move, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every key beside params that the schedule would take in it."""
    for name in subject.section("scheduler"):
        path, inside = f"scheduler.{name}", f"scheduler.params.{name}"
        if name in ("type", "params", "name") or subject.surface.key(inside, subject.config) is None:
            continue
        taken = subject.written(inside) or not isinstance(subject.section("scheduler").get("params", {}), Mapping)
        fix = None if taken else Fix("move into params", (Move(path, inside),))
        yield Fault(path, f"DeepSpeed does not read {path}; it belongs in scheduler.params", fix)


RULE = Rule(
    code="DSG565",
    name="scheduler-argument-beside-params",
    severity=Severity.WARNING,
    what="The section scheduler has arguments of the schedule next to params.",
    why=(
        "DeepSpeed reads type and params there and nothing else, without a word: the schedule takes its default "
        "instead."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "WarmupLR", "params": {}, "warmup_num_steps": 100}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}
}""",
    evidence=("deepspeed/runtime/config.py (0.19.8): get_scheduler_params",),
    check=check,
)
