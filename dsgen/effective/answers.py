"""The summary of a loaded config: dtype, stage, offload, clipping, batch, optimizer and learning rate."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dsgen.effective.outcomes import Answers

__all__ = ["answers"]

_TRAIN, _MICRO, _STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


def answers(
    report: Mapping[str, Any], values: Mapping[str, Any], open_: Collection[str], written: Mapping[str, Any]
) -> Answers:
    """The answers to be had from a child's report.

    Args:
        report: What `engine.effective.parsing.run` wrote.
        values: Dotted key -> value in force.
        open_: Keys that the target fills in.
        written: The config as written.
    """
    optimizer, schedule = report.get("optimizer") or {}, report.get("schedule") or {}
    stage = values.get("zero_optimization.stage", 0)
    offload_optimizer, offload_parameters = _offload(values, stage)
    batch = {key: None if _undecided(key, open_, written) else values.get(key) for key in (_TRAIN, _MICRO, _STEPS)}
    return Answers(
        dtype=_dtype(values, open_),
        autocast=_autocast(values),
        stage=stage,
        offload_optimizer=offload_optimizer,
        offload_parameters=offload_parameters,
        gradient_clipping=None if "gradient_clipping" in open_ else values.get("gradient_clipping"),
        train_batch_size=batch[_TRAIN],
        micro_batch=batch[_MICRO],
        accumulation=batch[_STEPS],
        optimizer=optimizer.get("class") or values.get("optimizer.type"),
        lr=None if "optimizer.params.lr" in open_ else values.get("optimizer.params.lr"),
        schedule=schedule.get("class") or values.get("scheduler.type"),
        first_lr=schedule.get("first"),
        highest_lr=schedule.get("highest"),
        highest_lr_step=schedule.get("at_step"),
        schedule_ignores_lr=schedule.get("own"),
    )


def _undecided(key: str, open_: Collection[str], written: Mapping[str, Any]) -> bool:
    """Whether a batch key hangs on what the target fills in."""
    missing = [other for other in (_MICRO, _STEPS) if other in open_]
    if key in open_:
        return key != _TRAIN or bool(missing) or written.get(_MICRO) is None
    decided = written.get(key) is not None
    return not decided and (bool(missing) or (written.get(_MICRO) is None and _TRAIN in open_))


def _dtype(values: Mapping[str, Any], open_: Collection[str]) -> str | None:
    for section in ("fp16", "bf16"):
        if values.get(f"{section}.enabled") is True:
            return section
    return None if {"fp16.enabled", "bf16.enabled"} & set(open_) else "fp32"


def _autocast(values: Mapping[str, Any]) -> str | None:
    if values.get("torch_autocast.enabled") is not True:
        return None
    return str(values.get("torch_autocast.dtype") or "by torch").removeprefix("torch.")


def _offload(values: Mapping[str, Any], stage: Any) -> tuple[str, str]:
    """Where optimizer and parameters go: nothing at stage 0, no parameters below 3, and NVMe below 3 means the CPU."""
    optimizer, parameters = (
        str(values.get(f"zero_optimization.offload_{what}.device") or "none") for what in ("optimizer", "param")
    )
    if stage == 3:
        return optimizer, parameters
    return ("cpu" if optimizer == "nvme" else optimizer) if stage else "none", "none"
