"""A number of steps that is no whole number above 0."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.arguments import arguments, built_schedule, number
from dsgen.linting.rules.rule import OF_ANOTHER_TYPE, Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

# Argument -> the first release that checks it.
_STEPS = {"warmup_num_steps": (0, 19, 3), "lr_range_test_step_size": (0, 19, 4), "cycle_first_step_size": (0, 19, 4)}


def check(subject: Subject) -> Iterator[Fault]:
    """Every number of steps that the schedule refuses."""
    built = built_schedule(subject)
    for name, value in arguments(subject, "scheduler").items():
        if built is None or name not in _STEPS or value == "auto" or not built.takes(name):
            continue
        if subject.version < _STEPS[name] or _taken(name, value, subject.target.strict_json):
            continue
        path = f"scheduler.params.{name}"
        said = f"{name} is {say(value)}, and {built.title} stops; it must be a whole number above 0"
        steps = number(value)
        whole = int(steps) if steps is not None and steps.is_integer() and steps > 0 else 1
        fix = Fix(f"write {whole}", (Assign(path, whole),), safe=whole == steps) if steps is not None else None
        yield Fault(path, said, fix, on="value")


def _taken(name: str, value: object, strict_json: bool) -> bool:
    """Whether the schedule takes it; DeepSpeed's own reader makes 1e3 the whole number 1000, Python's json does not."""
    if value is True:
        return True  # counts as 1
    if name == "cycle_first_step_size" and (isinstance(value, str) or number(value) is not None):
        try:
            return float(value) > 0  # type: ignore[arg-type]
        except ValueError:
            return False
    steps = number(value) or 0.0
    return steps > 0 and (isinstance(value, int) or (not strict_json and steps.is_integer()))


RULE = Rule(
    code="DSG556",
    name="steps-not-positive",
    severity=Severity.ERROR,
    what="warmup_num_steps, lr_range_test_step_size or cycle_first_step_size is 0, negative, a fraction or a text.",
    why=(
        'deepspeed.initialize stops with "must be a positive integer" since 0.19.3 (the last two since 0.19.4). '
        "Guides say 0 for no warm-up; that is 1 or a config without the schedule. A program that reads the file "
        "with Python's json makes 1e3 a float, which is refused as well."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 1}}
}""",
    evidence=(
        "deepspeed/runtime/lr_schedules.py (0.19.8): WarmupLR, LRRangeTest, OneCycle",
        "probes SCH_warmup0, A_sched_auto",
        "https://github.com/deepspeedai/DeepSpeed/commit/54ebdec61",
    ),
    check=check,
    shows=OF_ANOTHER_TYPE,
    since="0.19.3",
)
