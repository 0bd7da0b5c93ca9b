"""The live loss scaler of fp16: an overflow is forced, its step must be skipped, and the run must go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsgen.engine.proof import observing

__all__ = ["force_overflow", "is_fp16", "step_until_one_counts"]

# DeepSpeed's defaults (runtime/precision_config.py, 0.19.8).
_HYSTERESIS, _LEAST_SCALE = 2, 1.0
_MOST_STEPS = 20  # until the scaler lets one through: it halves from 2**16


def is_fp16(config: dict[str, Any]) -> bool:
    """Whether a config turns fp16 on."""
    section = config.get("fp16")
    return isinstance(section, dict) and section.get("enabled") is True


def force_overflow(engine: Any, config: dict[str, Any], step: Callable[[float], float]) -> dict[str, Any] | None:
    """Make gradients that are no numbers until the scale falls, then step until a step counts.

    Args:
        engine: After its own steps.
        config: Its config.
        step: Takes one optimizer step with its losses times a number.

    Returns:
        forced and skipped (steps), kept (whether the weights stayed), scales (before, after), rate (of learning in the
        last step after them: the first that was neither skipped nor one at a rate of 0, as a warm-up begins with),
        moved and finite (by then). None where the scale is at its least already: DeepSpeed stops there by design.
    """
    section = config["fp16"]
    dynamic = not section.get("loss_scale")
    first = _scale(engine)
    if dynamic and first <= float(section.get("min_loss_scale", _LEAST_SCALE)):
        return None
    before, skipped, forced = observing.snapshot(engine), int(engine.skipped_steps), 0
    while forced == 0 or (dynamic and _scale(engine) == first and forced < section.get("hysteresis", _HYSTERESIS)):
        step(float("inf"))
        forced += 1
    after, last = observing.snapshot(engine), _scale(engine)
    told = {
        "forced": forced,
        "skipped": int(engine.skipped_steps) - skipped,
        "kept": all(old.equal(new) for old, new in zip(before["tensors"], after["tensors"], strict=True)),
        "scales": [first, last],
    }
    rate = 0.0
    for _ in range(_MOST_STEPS):
        skipped, rate = int(engine.skipped_steps), max(observing.rates(engine))
        step(1.0)
        if int(engine.skipped_steps) == skipped and rate > 0:
            break
    now = observing.snapshot(engine)
    moved = any(not old.equal(new) for old, new in zip(after["tensors"], now["tensors"], strict=True))
    return {**told, "rate": rate, "moved": moved, "finite": all(bool(one.isfinite().all()) for one in now["tensors"])}


def step_until_one_counts(engine: Any, step: Callable[[], object]) -> int:
    """Step on where the scaler has skipped every step so far: its first scale may be too large. Returns how often."""
    taken = 0
    while int(engine.skipped_steps) == int(engine.global_steps) and taken < _MOST_STEPS:
        step()
        taken += 1
    return taken


def _scale(engine: Any) -> float:
    """What the loss is multiplied by."""
    return float(engine.optimizer.loss_scale)
