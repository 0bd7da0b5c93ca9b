"""Expert parallelism for a model without experts."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_SECTION = "expert_parallel"


def check(subject: Subject) -> Iterator[Fault]:
    """A section that is on, for a model or parameters that are known and have no experts."""
    model, names = subject.facts.model, subject.facts.parameters
    dense = model is not None and not model.experts
    if names:
        dense = not any("expert" in name.lower() for name in names)
    if subject.on(_SECTION) and dense:
        message = "expert_parallel is on, but the model has no experts: DeepSpeed warns that it found none and goes on"
        yield Fault(_SECTION, message, Fix("remove expert_parallel", (Remove(_SECTION),)))


RULE = Rule(
    code="DSG431",
    name="expert-parallel-on-dense-model",
    severity=Severity.WARNING,
    what="AutoEP is switched on for a dense model.",
    why="AutoEP looks for mixture-of-experts layers, finds none, logs it, and the run is plain data parallelism.",
    example='{"train_micro_batch_size_per_gpu": 1, "expert_parallel": {"enabled": true, "autoep_size": 2}}',
    instead='{"train_micro_batch_size_per_gpu": 1}',
    evidence=("probe EP_on_nomoe: `AutoEP: no MoE layers detected in model.`",),
    check=check,
    given={"parameters": ("layers.0.up_proj.weight", "layers.0.down_proj.weight")},
    since="0.19.2",
)
