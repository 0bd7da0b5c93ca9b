"""A form of warm-up that DeepSpeed does not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.arguments import built_schedule
from dsgen.linting.rules.rule import OF_ANOTHER_TYPE, Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_KNOWN = ("log", "linear")
_TAKEN = "log"  # what DeepSpeed takes for any other text


def check(subject: Subject) -> Iterator[Fault]:
    """The value, where DeepSpeed replaces it; a list or a map stops it."""
    path = "scheduler.params.warmup_type"
    value = subject.raw(path)
    built = built_schedule(subject)
    if built is None or not built.takes("warmup_type") or not subject.written(path) or value == "auto":
        return
    if isinstance(value, (list, Mapping)):
        said = f"warmup_type is {say(value)}, and {built.title} stops; it must be log or linear"
        yield Fault(path, said, None, Severity.ERROR, on="value")
    elif value not in _KNOWN:
        meant = value.strip().lower() if isinstance(value, str) else ""
        best = meant if meant in _KNOWN else _TAKEN
        both = "" if best == _TAKEN else f": today {_TAKEN} runs, with it {best}"
        fix = Fix(f"write {best}{both}", (Assign(path, best),), safe=best == _TAKEN)
        said = f"DeepSpeed has no warmup_type {say(value)} and takes log; it must be log or linear"
        yield Fault(path, said, fix, on="value")


RULE = Rule(
    code="DSG558",
    name="unknown-warmup-type",
    severity=Severity.WARNING,
    what="warmup_type is neither log nor linear.",
    why=(
        "DeepSpeed logs a warning and takes log, which climbs fast at first. The letters count exactly: Linear is "
        "unknown."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_type": "Linear"}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear"}}
}""",
    evidence=(
        "deepspeed/runtime/lr_schedules.py (0.19.8): WarmupLR",
        "probe SCH_linearlower",
    ),
    check=check,
    shows=OF_ANOTHER_TYPE,
)
