"""The hybrid engine switched on in a run that only trains."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "hybrid_engine.enabled"


def check(subject: Subject) -> Iterator[Fault]:
    """hybrid_engine.enabled, unless the program is known to generate with the engine."""
    if not subject.on("hybrid_engine") or "engine.generate" in subject.facts.calls:
        return
    yield Fault(
        _PATH,
        f"{_PATH} makes the engine for training by reinforcement learning, which speeds up engine.generate() of the "
        f"few model families that DeepSpeed has inference kernels for; it does nothing for the training step",
        Fix("switch hybrid_engine off", (Assign(_PATH, False),), safe=False),
    )


RULE = Rule(
    code="DSG709",
    name="hybrid-engine-on",
    severity=Severity.WARNING,
    what="The hybrid engine is on in a program that is not known to generate text while it trains.",
    why=(
        "DeepSpeedHybridEngine swaps the layers of OPT, BLOOM, GPT-NeoX, GPT-J and Llama models for inference "
        "kernels while `generate()` runs. For every other model it warns that no inference policy was found and "
        "trains as the plain engine does."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "hybrid_engine": {"enabled": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1
}""",
    evidence=(
        ('deepspeed/runtime/hybrid_engine.py (0.19.8); its warning "No compatible DeepSpeed inference policy found"'),
    ),
    check=check,
)
