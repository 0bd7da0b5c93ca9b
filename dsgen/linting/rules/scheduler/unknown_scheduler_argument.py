"""An argument that the schedule does not take."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import arguments, built_schedule, unknown
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Move, Remove, Severity
from dsgen.shapes.near_misses import alike

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every argument that ends in a TypeError."""
    built = built_schedule(subject)
    if built is None:
        return
    written = arguments(subject, "scheduler")
    for name in unknown(subject, "scheduler", built):
        path = f"scheduler.params.{name}"
        meant = next((other for other in alike(name, built.defaults) if other not in written), None)
        yield _fault(built.title, name, path, meant, subject.raw(path), f"it takes {', '.join(built.defaults)}")


def _fault(title: str, name: str, path: str, meant: str | None, value: object, takes: str) -> Fault:
    said = f"{title} takes no {name} and stops in deepspeed.initialize"
    fix = Fix(f"remove {name}", (Remove(path),), safe=False)
    if name == "warmup_min_lr" and title == "WarmupCosineLR":
        zero = value in (0, "auto") and value is not False
        fix = Fix(f"remove {name}", (Remove(path),), safe=zero)  # 0 is what the schedule does anyway
        return Fault(path, f"{said}; there is warmup_min_ratio, a part of the optimizer's lr", fix)
    if name == "warmup_max_lr" and title == "WarmupCosineLR":
        return Fault(path, f"{said}; it climbs to the optimizer's lr", fix)
    if meant:
        fix = Fix(f"rename to {meant}", (Move(path, f"scheduler.params.{meant}"),), safe=False)
    return Fault(path, f"{said}; {f'there is {meant}' if meant else takes}", fix)


RULE = Rule(
    code="DSG553",
    name="unknown-scheduler-argument",
    severity=Severity.ERROR,
    what="scheduler.params has an argument that the class does not know.",
    why=(
        "deepspeed.initialize stops with a TypeError. Most often it is an argument of another schedule: "
        "WarmupCosineLR takes no warmup_max_lr and no warmup_min_lr, for it follows the optimizer's learning "
        "rate."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {
    "type": "WarmupCosineLR",
    "params": {"total_num_steps": 1000, "warmup_num_steps": 100, "warmup_min_lr": 0}
  }
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {
    "type": "WarmupCosineLR",
    "params": {"total_num_steps": 1000, "warmup_num_steps": 100, "warmup_min_ratio": 0}
  }
}""",
    evidence=(
        "deepspeed/runtime/lr_schedules.py (0.19.8): the signatures",
        "probe A_unk_sched_param",
    ),
    check=check,
)
