"""Muon at stage 3 where DeepSpeed cannot run it."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import client_wins
from dsgen.linting.rules.rule import Rule
from dsgen.linting.setups import refused
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The switch, or the stage where the release has no way."""
    if client_wins(subject):
        return
    path = "zero_optimization.reduce_scatter"
    if why := refused(subject, "muon-at-stage-3"):
        fix = Fix("write 2", (Assign("zero_optimization.stage", 2),), safe=False)
        yield Fault("zero_optimization.stage", why, fix, on="value")
    elif why := refused(subject, "muon-with-reduce-scatter"):
        yield Fault(path, why, Fix("write false", (Assign(path, False),)))


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
