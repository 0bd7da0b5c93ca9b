"""A key that DeepSpeed does not know, in a section that refuses what it does not know."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.unknown import Unknown, renaming, unknown_keys
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every unknown key of a strict section."""
    for unknown in unknown_keys(subject):
        if unknown.strict and unknown.later is None:
            section, _, name = unknown.path.rpartition(".")
            message = f"DeepSpeed {subject.surface.version} has no {section}.{name} and rejects the whole config"
            yield Fault(unknown.path, f"{message}{_meant(unknown)}", _mend(unknown))


def _meant(unknown: Unknown) -> str:
    if not unknown.meant:
        return ""
    if unknown.sure and unknown.here:
        return f"; {unknown.meant[0].rpartition('.')[2]} is meant"
    return f"; there is {' and '.join(unknown.meant[:2])}"


def _mend(unknown: Unknown) -> Fix:
    removal = Fix(f"remove {unknown.path.rpartition('.')[2]}", (Remove(unknown.path),), safe=False)
    return renaming(unknown) or removal


RULE = Rule(
    code="DSG101",
    name="rejected-key",
    severity=Severity.ERROR,
    what="A section that DeepSpeed checks strictly has a key that this release does not know.",
    why=(
        "These sections are pydantic models that forbid extra keys: the parse stops with `Extra inputs are not "
        "permitted`, on every rank, before anything is trained. A comment written as a key (`_comment`) counts too."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "overlap_com": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "overlap_comm": true}
}""",
    evidence=("deepspeed/runtime/config_utils.py (0.19.8): DeepSpeedConfigModel, extra=forbid",),
    check=check,
    general=True,
)
