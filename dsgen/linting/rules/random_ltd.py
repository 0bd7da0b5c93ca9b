"""What random layer-token dropping takes from its section without a default, and the values that it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.deepspeed.keys import lookup, say

__all__ = ["AT_STEP", "SECTION", "missing", "missing_of_layers", "refused"]

SECTION = "data_efficiency.data_routing.random_ltd"
AT_STEP = ("require_steps", "seq_per_step")  # read in the first step; all else in deepspeed.initialize

_SCHEDULE = "random_ltd_schedule"
_TYPE = "schedule_type"
_RATE = "layer_token_lr_schedule.enabled"
_AT_INIT = ("total_layer_num", "random_ltd_layer_num", _SCHEDULE)
_OF_THE_SCHEDULE = ("min_value", "max_value", "schedule_config", _TYPE)
_OF_THE_LAYERS = ("random_ltd_layer_id", "model_mask_name", "hidden_state_order", "model_type")


def missing(section: Mapping[str, object]) -> Iterator[str]:
    """The keys that the scheduler asks for and does not find, in its order."""
    yield from (name for name in _AT_INIT if name not in section)
    rate = section.get("layer_token_lr_schedule")
    if isinstance(rate, Mapping) and "enabled" not in rate:
        yield _RATE
    schedule = section.get(_SCHEDULE)
    if isinstance(schedule, Mapping):
        yield from (f"{_SCHEDULE}.{name}" for name in _OF_THE_SCHEDULE if name not in schedule)
        steps = schedule.get("schedule_config")
        if isinstance(steps, Mapping):
            yield from (f"{_SCHEDULE}.schedule_config.{name}" for name in AT_STEP if name not in steps)


def missing_of_layers(section: Mapping[str, object]) -> list[str]:
    """The keys that a layer asks for once convert_to_random_ltd has wrapped it, in its order."""
    return [name for name in _OF_THE_LAYERS if name not in section]


def refused(section: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Key and sentence of each value that the scheduler does not have.

    A schedule is asked only while it keeps less than all tokens.
    """
    least, most, kind = (lookup(section, f"{_SCHEDULE}.{name}")[1] for name in ("min_value", "max_value", _TYPE))
    grows = not (isinstance(least, (int, float)) and isinstance(most, (int, float)) and least >= most)
    if kind != "fixed_linear" and grows:
        yield f"{_SCHEDULE}.{_TYPE}", f'is {say(kind)}, and the first step stops: it must be "fixed_linear"'
    if lookup(section, _RATE)[1]:
        yield _RATE, "is not written yet in DeepSpeed, and deepspeed.initialize stops (NotImplementedError)"
