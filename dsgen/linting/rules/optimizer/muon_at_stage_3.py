"""Muon at stage 3 where DeepSpeed cannot run it."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import client_wins
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_STAGE = 3
_SINCE = (0, 18, 9)  # the first release with Muon at stage 3


def check(subject: Subject) -> Iterator[Fault]:
    """The switch, or the stage where the release has no way."""
    if subject.optimizer != "muon" or subject.stage != _STAGE or client_wins(subject):
        return
    path = "zero_optimization.reduce_scatter"
    if subject.version < _SINCE:
        fix = Fix("write 2", (Assign("zero_optimization.stage", 2),), safe=False)
        said = f"DeepSpeed {subject.surface.version} refuses Muon at stage 3; it must be stage 2 or lower"
        yield Fault("zero_optimization.stage", said, fix, on="value")
    elif subject.value(path) is True:
        fix = Fix("write false", (Assign(path, False),))
        yield Fault(path, "Muon at stage 3 needs reduce_scatter false; with true deepspeed.initialize stops", fix)


RULE = Rule(
    code="DSG519",
    name="muon-at-stage-3",
    severity=Severity.ERROR,
    what="Muon runs at stage 3 with reduce_scatter on, which is its default.",
    why=(
        'Muon needs whole gradient matrices, so that deepspeed.initialize stops with "Muon and reduce scatter '
        'cannot be used together"; releases before 0.18.9 refuse stage 3 as such.'
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "Muon", "params": {"lr": 0.001}},
  "zero_optimization": {"stage": 3},
  "bf16": {"enabled": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "Muon", "params": {"lr": 0.001}},
  "zero_optimization": {"stage": 3, "reduce_scatter": false},
  "bf16": {"enabled": true}
}""",
    evidence=(
        "deepspeed/runtime/zero/stage3.py (0.19.8): __init__",
        "probes OPT_Muon_z3, OPT_Muon_z3_rsoff",
    ),
    check=check,
    since="0.17.5",
)
