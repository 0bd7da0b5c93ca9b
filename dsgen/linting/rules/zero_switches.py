"""What several settings together decide in ZeRO: which optimizer wraps the other, and whether reduction overlaps."""

from __future__ import annotations

from collections.abc import Mapping

from dsgen.linting.subjects import OPEN, Subject

__all__ = ["ADAMS", "flows", "on_cuda", "overlaps", "settled", "wrapped_for_bf16"]

ADAMS = ("adam", "adamw")
_STAGE = "zero_optimization.stage"
_FP32 = ("fp32", "float32", "float", "torch.float32")


def wrapped_for_bf16(subject: Subject) -> bool:
    """Whether BF16_Optimizer runs and not ZeRO's own: stage 1, bf16, gradients accumulated in fp32, no CPU offload.

    Source: deepspeed/runtime/engine.py (0.19.8), _do_optimizer_sanity_check.
    """
    fp32 = subject.value("data_types.grad_accum_dtype") in _FP32
    return subject.stage == 1 and subject.on("bf16") and fp32 and subject.offload("optimizer") != "cpu"


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
