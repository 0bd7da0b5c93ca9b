"""A key that only a later release of DeepSpeed reads."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed import surface
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.unknown import unknown_keys
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every key that came after the release."""
    for unknown in unknown_keys(subject):
        if unknown.later is None:
            continue
        made = "rejects the config" if unknown.strict else "ignores it"
        idle = bool(surface.load().default(unknown.path) == unknown.value)  # it asks for nothing
        yield Fault(
            unknown.path,
            f"{unknown.path} came with DeepSpeed {unknown.later}; {subject.surface.version} {made}",
            Fix(f"remove {unknown.path.rpartition('.')[2]}", (Remove(unknown.path),), safe=idle and not unknown.strict),
            Severity.ERROR if unknown.strict else Severity.WARNING,
        )


RULE = Rule(
    code="DSG111",
    name="key-too-new",
    severity=Severity.ERROR,
    what="A key is written that the release the config is for does not have yet.",
    why="In a strict section the older release rejects the config; elsewhere it ignores the key without a word.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "compute_grad_norm": false},
  "gradient_clipping": 0.0
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2},
  "gradient_clipping": 0.0
}""",
    evidence=("schema/deepspeed: the surface of each release line, generated from the release",),
    given={"deepspeed": "0.18"},
    check=check,
    about_versions=True,
)
