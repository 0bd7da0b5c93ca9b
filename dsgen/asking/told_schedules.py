"""What a training program's arguments say of its learning-rate schedule, as DeepSpeed's schedules have it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["schedule", "unended"]

_KINDS = ("lr_scheduler_type", "lr_scheduler")  # transformers' and LLaMA-Factory's, Axolotl's
# What falls until the last step, and DeepSpeed's schedule that falls alike; and the one that does not fall.
_FALLING = {"linear": "WarmupDecayLR", "cosine": "WarmupCosineLR"}
_LEVEL = {"constant_with_warmup": "WarmupLR"}


def schedule(values: Mapping[str, Any], ended: bool = False) -> Iterator[tuple[str, Any]]:
    """Path of a wish -> its value; a schedule that falls only where its end is said too.

    transformers 5.23 rounds a share of the steps up (training_args.py: get_warmup_steps).

    Args:
        values: All arguments.
        ended: Somebody else says how long training lasts.
    """
    total, warm = values.get("max_steps"), values.get("warmup_steps")
    share = warm if isinstance(warm, float) else values.get("warmup_ratio")
    if _is_count(warm):
        yield "training.warmup_steps", warm
    elif isinstance(total, int) and _is_count(total) and isinstance(share, float) and 0 < share < 1:
        yield "training.warmup_steps", math.ceil(total * share)
    taken = {**_LEVEL, **(_FALLING if ended or _is_count(total) else {})}.get(_kind(values))
    if taken is not None:
        yield "training.scheduler", taken


def unended(values: Mapping[str, Any]) -> str | None:
    """The schedule that falls until an end that the arguments do not say in steps; None where there is none such."""
    named = _kind(values)
    return named if named in _FALLING and not _is_count(values.get("max_steps")) else None


def _kind(values: Mapping[str, Any]) -> str:
    return next((str(values[name]) for name in _KINDS if values.get(name)), "")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
