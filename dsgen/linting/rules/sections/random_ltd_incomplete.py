"""Random layer-token dropping without what its schedule is made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_SECTION = "data_efficiency.data_routing.random_ltd"
_SCHEDULE = "random_ltd_schedule"
_AT_INIT = ("total_layer_num", "random_ltd_layer_num", _SCHEDULE)
_OF_THE_SCHEDULE = ("min_value", "max_value", "schedule_config", "schedule_type")
_AT_STEP = ("require_steps", "seq_per_step")


def check(subject: Subject) -> Iterator[Fault]:
    """The first key that the scheduler asks for and does not find: DeepSpeed stops there."""
    section = subject.raw(_SECTION)
    if not isinstance(section, Mapping) or not section.get("enabled"):
        return
    path = next(iter(_missing(section)), None)
    if path is not None:
        name = path.rpartition(".")[2]
        when = "the first step" if name in _AT_STEP else "deepspeed.initialize"
        yield Fault(
            f"{_SECTION}.{path}", f"{_SECTION} is enabled without {path}, and {when} stops with KeyError '{name}'"
        )


def _missing(section: Mapping[str, object]) -> Iterator[str]:
    yield from (name for name in _AT_INIT if name not in section)
    rate = section.get("layer_token_lr_schedule")
    if isinstance(rate, Mapping) and "enabled" not in rate:
        yield "layer_token_lr_schedule.enabled"
    schedule = section.get(_SCHEDULE)
    if isinstance(schedule, Mapping):
        yield from (f"{_SCHEDULE}.{name}" for name in _OF_THE_SCHEDULE if name not in schedule)
        steps = schedule.get("schedule_config")
        if isinstance(steps, Mapping):
            yield from (f"{_SCHEDULE}.schedule_config.{name}" for name in _AT_STEP if name not in steps)


RULE = Rule(
    code="DSG706",
    name="random-ltd-incomplete",
    severity=Severity.ERROR,
    what="random_ltd is enabled and a key of its schedule is missing.",
    why=(
        "The engine builds the schedule as soon as `random_ltd.enabled` is true, whether data_efficiency and "
        "data_routing are enabled or not, and takes its keys without defaults."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "data_efficiency": {"data_routing": {"random_ltd": {"enabled": true}}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "data_efficiency": {"data_routing": {"random_ltd": {"enabled": false}}}
}""",
    evidence=(
        "deepspeed/runtime/data_pipeline/data_routing/scheduler.py (0.19.8)",
        "seen on 0.19.8: KeyError: 'total_layer_num' in deepspeed.initialize",
    ),
    check=check,
)
