"""Contiguous checkpoints without the two keys they need."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_SECTION = "activation_checkpointing"


def check(subject: Subject) -> Iterator[Fault]:
    """contiguous_memory_optimization without partition_activations, or without number_checkpoints."""
    path = f"{_SECTION}.contiguous_memory_optimization"
    if not subject.raw(path) or subject.raw(path) == "auto":
        return
    used = "checkpointing.configure" in subject.facts.calls
    fix = None
    if not subject.raw(f"{_SECTION}.partition_activations"):
        missing = "partition_activations is not on"
        fix = Fix("turn contiguous_memory_optimization off", (Assign(path, False),), safe=not used)
    elif subject.raw(f"{_SECTION}.number_checkpoints") is None:
        missing = "number_checkpoints, the number of checkpointed layers, is missing"
    else:
        return
    message = f"deepspeed.checkpointing.configure() stops with an AssertionError: {path} is on and {missing}"
    yield Fault(path, message, fix, Severity.ERROR if used else None)


RULE = Rule(
    code="DSG701",
    name="contiguous-checkpoints-incomplete",
    severity=Severity.WARNING,
    what=("contiguous_memory_optimization is on without partition_activations or without number_checkpoints."),
    why=(
        "The contiguous buffer holds partitioned activations and is sized by the number of checkpoints. "
        "configure() asserts both. It is an error where the program is known to call it."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "activation_checkpointing": {"contiguous_memory_optimization": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "activation_checkpointing": {
    "partition_activations": true, "contiguous_memory_optimization": true, "number_checkpoints": 32
  }
}""",
    evidence=(
        ("deepspeed/runtime/activation_checkpointing/checkpointing.py (0.19.8): two asserts at the end of configure()"),
    ),
    check=check,
)
