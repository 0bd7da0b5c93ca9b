"""The dtype of the model that a config asks for, and the names that DeepSpeed has for dtypes."""

from __future__ import annotations

from dsgen.linting.subjects import OPEN, Subject
from dsgen.strategies.constraints.setup import DTYPES

__all__ = ["DTYPES", "FP16_ONLY", "builds_optimizer", "model_dtype"]

# Of the section fp16; in bf16 no release ever read them, and those until 0.17.0 took them there.
FP16_ONLY = (
    "loss_scale",
    "loss_scale_window",
    "initial_scale_power",
    "hysteresis",
    "consecutive_hysteresis",
    "min_loss_scale",
    "auto_cast",
)


def model_dtype(subject: Subject) -> str | None:
    """The dtype that the weights will have: "fp16", "bf16" or "fp32"; None where the program decides it."""
    switches = {name: subject.value(f"{name}.enabled") for name in ("fp16", "bf16")}
    on = [name for name, value in switches.items() if value is not OPEN and value == 1]  # pydantic takes 1 for true
    if on:
        return on[0]
    return None if OPEN in switches.values() else "fp32"


def builds_optimizer(subject: Subject) -> bool:
    """Whether there is an optimizer as far as is known: in the config, of the program, or brought by the target."""
    named = isinstance(subject.raw("optimizer.type"), str)
    return named or subject.target.brings_optimizer or subject.facts.client_optimizer in ("torch", "deepspeed")
