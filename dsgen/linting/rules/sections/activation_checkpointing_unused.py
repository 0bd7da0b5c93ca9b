"""An activation_checkpointing section that nothing in the program reads."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_SECTION = "activation_checkpointing"
_NEVER = ("hf-trainer", "accelerate")  # they never call deepspeed.checkpointing; Lightning does, with this section


def check(subject: Subject) -> Iterator[Fault]:
    """The section as a whole, unless the program is known to use deepspeed.checkpointing, as Lightning does."""
    if subject.target.name == "lightning":
        return  # its strategy calls deepspeed.checkpointing.configure with the section (2.6.6, strategies/deepspeed.py)
    section = subject.section(_SECTION)
    known = [name for name in section if subject.surface.key(f"{_SECTION}.{name}") is not None]
    if not known or any(call.startswith("checkpointing") for call in subject.facts.calls):
        return
    asks = any(section[name] for name in known)
    yield Fault(
        _SECTION,
        f"{_SECTION} saves no memory by itself: only a program that calls deepspeed.checkpointing reads it, and "
        f"deepspeed.initialize does not",
        Fix(f"remove {_SECTION}", (Remove(_SECTION),), safe=subject.target.name in _NEVER),
        None if asks else Severity.INFO,
    )


RULE = Rule(
    code="DSG700",
    name="activation-checkpointing-unused",
    severity=Severity.WARNING,
    what=("The activation_checkpointing section does nothing in a program that does not call deepspeed.checkpointing."),
    why=(
        "The section only sets how `deepspeed.checkpointing.checkpoint()` stores what it keeps. "
        "deepspeed.initialize wraps no layer in it, and `gradient_checkpointing` of Hugging Face uses torch's own"
        " function and never looks here. Runs that need the memory then fail with CUDA out of memory. Say "
        "`--calls checkpointing.configure` when the program does use it."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "activation_checkpointing": {"partition_activations": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1
}""",
    evidence=(
        ("deepspeed/runtime/activation_checkpointing/checkpointing.py (0.19.8): configure() is the only reader"),
    ),
    check=check,
)
