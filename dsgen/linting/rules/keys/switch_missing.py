"""A section with settings whose switch `enabled` is not written, so that it is off."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every section that has keys and no switch, where the release switches it off then."""
    for path, value in subject.leaves():
        switch = subject.surface.key(f"{path}.enabled")
        if switch is None or switch.path != f"{path}.enabled" or switch.default is not False or switch.removed:
            continue
        if not isinstance(value, dict) or not value or "enabled" in value:
            continue
        known = [name for name in value if subject.surface.key(f"{path}.{name}") is not None]
        if known:
            listed = ", ".join(known[:3])
            yield Fault(
                path,
                f"{path} is off: it has {listed} but no enabled, which is false when it is not written",
                Fix(f"add {path}.enabled: true", (Assign(f"{path}.enabled", True),), safe=False),
            )


RULE = Rule(
    code="DSG106",
    name="switch-missing",
    severity=Severity.WARNING,
    what="A section has settings and no `enabled`, so DeepSpeed leaves it switched off.",
    why=(
        "`enabled` is false by default. A `bf16` section without it trains in fp32, an `fp16` section with only a "
        "loss scale does too, and nothing says so."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "fp16": {"initial_scale_power": 16}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "fp16": {"enabled": true, "initial_scale_power": 16}
}""",
    evidence=("deepspeed/runtime/precision_config.py (0.19.8): enabled: bool = False",),
    check=check,
)
