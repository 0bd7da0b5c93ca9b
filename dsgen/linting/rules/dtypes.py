"""The dtype of the model that a config asks for, and the names that DeepSpeed has for dtypes."""

from __future__ import annotations

from collections.abc import Mapping

from dsgen.linting.subjects import OPEN, Subject

__all__ = ["DTYPES", "builds_optimizer", "model_dtype"]

DTYPES: Mapping[str, str] = {  # DtypeEnum of deepspeed/runtime/config.py (0.19.8): every name -> the short one
    **dict.fromkeys(("fp16", "float16", "half", "torch.float16"), "fp16"),
    **dict.fromkeys(("bf16", "bfloat16", "torch.bfloat16"), "bf16"),
    **dict.fromkeys(("fp32", "float32", "float", "torch.float32"), "fp32"),
    **dict.fromkeys(("int8", "torch.int8"), "int8"),
}


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
