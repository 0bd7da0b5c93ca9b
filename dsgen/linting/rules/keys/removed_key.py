"""A key of a feature that this release of DeepSpeed no longer has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every removed key that is written, whatever its value."""
    for path, value in subject.leaves():
        key = subject.surface.key(path)
        if key is None or not key.removed or key.path != path:
            continue
        instead = f"; use {key.replaced_by}" if key.replaced_by else ""
        off = _switched_off(value)
        still = ", even switched off" if off else ""
        message = f"DeepSpeed {key.removed} removed {path} and rejects a config that has it{still}{instead}"
        lost = _lost(subject, path) if not off else ""
        yield Fault(path, message, Fix(f"remove {path.rpartition('.')[2]}{lost}", (Remove(path),), safe=off))


def _lost(subject: Subject, path: str) -> str:
    """What the run then is without, where it is more than the key."""
    if path != "amp":
        return ""
    left = [name for name in ("fp16", "bf16", "torch_autocast") if subject.on(name)]
    return f": mixed precision is then {left[0]} alone" if left else ": its mixed precision is lost, the run is fp32"


def _switched_off(value: Any) -> bool:
    if isinstance(value, dict):
        return not value or value.get("enabled", True) is False
    return value in (False, None, -1)


RULE = Rule(
    code="DSG103",
    name="removed-key",
    severity=Severity.ERROR,
    what="The config configures a feature that this release no longer has.",
    why=(
        "DeepSpeed stops at the parse for a leftover block, because ignoring it would silently change what is "
        'trained. It does so even for `{"enabled": false}` and for an empty block.'
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "amp": {"enabled": false}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true}
}""",
    evidence=("deepspeed/runtime/config.py (0.19.8), lines 81 to 141",),
    check=check,
    about_versions=True,
)
