"""An argument of the schedule that has another type than it computes with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.arguments import TORCH_NUMBERS, arguments, built_schedule, number_fix
from dsgen.linting.rules.rule import OF_ANOTHER_TYPE, OF_NO_NUMBER, Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_PEAK_MAY_BE_NULL = (0, 17, 2)  # the first release that then takes the optimizer's rate
_OTHERS = (  # judged by rules of their own, or turned into a number
    *("warmup_type", "warmup_num_steps", "cycle_first_step_size", "cycle_second_step_size"),
    *("lr_range_test_step_size", "last_batch_iteration"),
)
_LISTS = (  # one value for each group of parameters
    *("warmup_min_lr", "warmup_max_lr", "cycle_min_lr", "cycle_max_lr", "cycle_min_mom", "cycle_max_mom"),
    "lr_range_test_min_lr",
)
_LATE = "cos_min_ratio"  # not needed before the warm-up is over
_MOMENTUM = ("cycle_min_mom", "cycle_max_mom", "decay_mom_rate")  # not looked at without cycle_momentum


def check(subject: Subject) -> Iterator[Fault]:
    """Every argument of the wrong type; "auto" is judged elsewhere."""
    built = built_schedule(subject)
    if built is None:
        return
    for name, value in arguments(subject, "scheduler").items():
        unread = name in _MOMENTUM and not subject.section("scheduler.params").get("cycle_momentum", True)
        elsewhere = name not in TORCH_NUMBERS if built.torch else name in _OTHERS
        if value == "auto" or unread or elsewhere or not built.takes(name):
            continue
        path, wanted = f"scheduler.params.{name}", built.defaults[name]
        if isinstance(wanted, bool):
            if isinstance(value, str):
                said = f"{name} is the text {say(value)}, which counts as true; it must be true or false"
                yield Fault(path, said, None, Severity.WARNING, on="value")
        elif _no_number(name, value) or (value is None and _needed(subject, name, wanted)):
            stops = "stops after the warm-up" if name == _LATE else "stops"
            said = f"{name} is {say(value)}, and {built.title} computes with it and {stops}; it must be a number"
            yield Fault(path, said, number_fix(path, value), Severity.WARNING if name == _LATE else None, on="value")


def _no_number(name: str, value: object) -> bool:
    if isinstance(value, list) and name in _LISTS:
        return not value or any(isinstance(item, (str, list, Mapping)) or item is None for item in value)
    return isinstance(value, (str, list, Mapping))


def _needed(subject: Subject, name: str, default: object) -> bool:
    if name == "warmup_max_lr":
        return subject.version < _PEAK_MAY_BE_NULL
    return default is not None or name in ("total_num_steps", "cycle_min_lr", "cycle_max_lr", *TORCH_NUMBERS)


RULE = Rule(
    code="DSG555",
    name="scheduler-argument-type",
    severity=Severity.ERROR,
    what="scheduler.params has a text, a map, a list or null where a number is needed, or a list without numbers.",
    why="The schedule computes with it: deepspeed.initialize or a step stops. YAML reads 1e-4 as a text.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "1e-4"}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.0001}}
}""",
    evidence=("deepspeed/runtime/lr_schedules.py (0.19.8)", "DeepSpeed 0.19.8 run with a text at each argument"),
    check=check,
    shows=(*OF_ANOTHER_TYPE, *OF_NO_NUMBER, r"expected \d+ (?:value for )?\w+, got 0"),
)
