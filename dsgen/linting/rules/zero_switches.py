"""What several settings together decide in ZeRO: which optimizer wraps the other, and whether reduction overlaps."""

from __future__ import annotations

from collections.abc import Mapping

from dsgen.linting.setups import of_subject
from dsgen.linting.subjects import OPEN, Subject

__all__ = ["ADAMS", "certain", "flows", "on_cuda", "overlaps", "settled", "wrapped_for_bf16"]

ADAMS = ("adam", "adamw")
_STAGE = "zero_optimization.stage"


def wrapped_for_bf16(subject: Subject) -> bool:
    """Whether BF16_Optimizer runs for certain, and not ZeRO's own."""
    return of_subject(subject)._replace(precision=certain(subject)).wrapped


def certain(subject: Subject) -> str | None:
    """The dtype "bf16" where it is switched on for certain; None where it is not, or the program decides."""
    return "bf16" if subject.on("bf16") else None


def settled(subject: Subject) -> bool:
    """Whether the stage is known and is not refused; without the key it is 0."""
    return subject.value(_STAGE) in (0, 1, 2, 3)


def overlaps(subject: Subject) -> bool | None:
    """Whether gradients are reduced during the backward pass: as written, else at stage 3 only; None when not known."""
    value = subject.value("zero_optimization.overlap_comm")
    if value is OPEN:
        return None
    return subject.stage == 3 if value is None else value is True


def flows(subject: Subject) -> bool:
    """Whether ZenFlow's own optimizer runs beside the one in the node's RAM: stage 1 or 2, with offload.

    Source: deepspeed/runtime/engine.py (0.19.8), _configure_zero_optimizer.
    """
    asked = isinstance(subject.raw("zero_optimization.zenflow"), Mapping)
    return asked and subject.stage in (1, 2) and subject.offload("optimizer") != "none"


def on_cuda(subject: Subject) -> bool:
    """Whether DeepSpeed's accelerator is "cuda" (AMD's GPUs too), as it is taken to be when nobody says."""
    return subject.facts.accelerator in (None, "cuda")
