"""Checkpoints by DataStates on a machine that may not have it."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "datastates_ckpt"
_PACKAGE = "datastates"


def check(subject: Subject) -> Iterator[Fault]:
    """datastates_ckpt with any value but false."""
    if not subject.written(_PATH) or subject.raw(_PATH) is False or subject.surface.key(_PATH) is None:
        return
    missing = _PACKAGE in subject.facts.missing
    there = "which this machine does not have" if missing else "which DeepSpeed does not install"
    yield Fault(
        _PATH,
        f"any {_PATH} but false switches on checkpoints by the package {_PACKAGE}, {there}; without it "
        f"deepspeed.initialize stops with a RuntimeError",
        Fix(f"set {_PATH} to false", (Assign(_PATH, False),), safe=False),
        Severity.ERROR if missing else None,
    )


RULE = Rule(
    code="DSG703",
    name="datastates-missing",
    severity=Severity.WARNING,
    what="datastates_ckpt needs the package datastates, which is installed from its source.",
    why=(
        "DeepSpeed asks whether the value is anything else than `false`: `null`, `0` and `{}` switch it on too. "
        "It is an error where the package is known to be missing."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "datastates_ckpt": {"host_cache_size": 16}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "datastates_ckpt": false
}""",
    evidence=(
        ("deepspeed/datastates/config.py and runtime/checkpoint_engine/datastates_checkpoint_engine.py (0.19.8)"),
    ),
    check=check,
)
