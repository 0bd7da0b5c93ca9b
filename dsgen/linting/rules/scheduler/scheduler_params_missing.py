"""A schedule whose params are missing or are no map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.arguments import built_schedule
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The missing map, or what stands in its place."""
    built = built_schedule(subject)
    params = subject.raw("scheduler.params")
    if built is None or isinstance(params, Mapping):
        return
    if params is not None:
        said = f"scheduler.params is {say(params)}, and deepspeed.initialize stops; it must be a map of arguments"
        yield Fault("scheduler.params", said, on="value")
        return
    fix = None if built.required else Fix("add empty params", (Assign("scheduler.params", {}),))
    said = f"scheduler has no params, and {built.title} stops in deepspeed.initialize; an empty map must be there"
    if built.required:
        said = f"scheduler has no params, and {built.title} stops without {' and '.join(built.required)}"
    yield Fault("scheduler.params" if subject.written("scheduler.params") else "scheduler", said, fix)


RULE = Rule(
    code="DSG552",
    name="scheduler-params-missing",
    severity=Severity.ERROR,
    what="The section scheduler has a type and no params, or params that are no map.",
    why=(
        "DeepSpeed unpacks params whatever they are: deepspeed.initialize stops with a TypeError. An empty map is "
        "enough for WarmupLR and LRRangeTest."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "WarmupLR"}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "WarmupLR", "params": {}}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _scheduler_from_config",
        "probe A_sched_noparams",
    ),
    check=check,
    shows=(r"argument after \*\* must be a mapping, not ",),
)
