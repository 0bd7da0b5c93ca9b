"""The learning rate that DeepSpeed's warm-up schedules set after a number of steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dsgen.proving.expectations import release

__all__ = ["learning_rate"]

# Defaults of runtime/lr_schedules.py, DeepSpeed 0.19.
_WARMUPS = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")
_WARMUP_STEPS = 1000
_DECAY_MAX_RATE = 0.001
_COSINE_MIN_RATIO = 0.0001
_SET_AT_START = (0, 15, 3)  # the release that sets the first rate when it makes a schedule; before, the first step does
_PEAK_OF_OPTIMIZER = (0, 17, 2)  # the release whose WarmupLR climbs to the optimizer's own rate; before, to 0.001
_LEAST_WARMUP_STEPS = 2  # DeepSpeed raises a shorter warm-up to 2, to divide by its logarithm


def learning_rate(scheduler: Mapping[str, Any] | None, base: float | None, steps: int, version: str) -> float | None:
    """The rate the optimizer holds after some applied steps.

    Args:
        scheduler: The `scheduler` section; None when there is none.
        base: The optimizer's own rate.
        steps: Steps applied; a step skipped for an overflow does not count.
        version: DeepSpeed's.

    Returns:
        The rate; None for a schedule that is not computed here (OneCycle, LRRangeTest, torch's own) or values that
        are no numbers.

    Source: runtime/lr_schedules.py and the order of calls in runtime/engine.py, DeepSpeed 0.19.8; 0.14.5 to 0.18.9.
    """
    if scheduler is None:
        return base
    params = scheduler.get("params") or {}
    name = scheduler.get("type")
    if steps == 0 and name in _WARMUPS and release(version) < _SET_AT_START:
        return base
    peak = base if release(version) >= _PEAK_OF_OPTIMIZER else _DECAY_MAX_RATE
    try:
        if name == "WarmupLR":
            return _warmup(params, params.get("warmup_max_lr", peak), steps, None)
        if name == "WarmupDecayLR":
            return _warmup(params, params.get("warmup_max_lr", _DECAY_MAX_RATE), steps, params["total_num_steps"])
        if name == "WarmupCosineLR":
            return _cosine(params, base, steps)
    except (KeyError, TypeError):  # DeepSpeed refuses these itself
        return None
    return None


def _ramp(params: Mapping[str, Any], last: int, warmup: int) -> float:
    """How far the warm-up is, 0 to 1."""
    if params.get("warmup_type", "log") == "linear":
        return last / warmup
    return math.log(last + 1) / math.log(warmup)


def _warmup_steps(params: Mapping[str, Any]) -> int:
    return int(max(_LEAST_WARMUP_STEPS, params.get("warmup_num_steps", _WARMUP_STEPS)))


def _warmup(params: Mapping[str, Any], top: Any, steps: int, total: int | None) -> float:
    low, warmup, last = params.get("warmup_min_lr", 0.0), _warmup_steps(params), steps - 1
    if last < 0:
        return float(low)
    if last < warmup:
        gamma = _ramp(params, last, warmup)
    elif total is None:
        gamma = 1.0
    else:
        gamma = max(0.0, (total - last) / max(1.0, total - warmup))
    return float(low + (top - low) * gamma)


def _cosine(params: Mapping[str, Any], base: Any, steps: int) -> float:
    low, warmup, last = params.get("warmup_min_ratio", 0.0), _warmup_steps(params), steps - 1
    if last < 0:
        return 0.0
    if last < warmup:
        return float(base * (low + (1.0 - low) * _ramp(params, last, warmup)))
    floor = params.get("cos_min_ratio", _COSINE_MIN_RATIO)
    progress = min(1.0, (last - warmup + 1) / max(1, params["total_num_steps"] - warmup))
    return float(base * max(0.0, floor + (1.0 - floor) * (1 + math.cos(math.pi * progress)) / 2))
