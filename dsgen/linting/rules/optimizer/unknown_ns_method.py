"""A Newton-Schulz method that Muon does not have."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.arguments import client_wins
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The value, where it is another."""
    path = "optimizer.params.ns_method"
    value = subject.raw(path)
    if subject.optimizer != "muon" or not subject.written(path) or value == "auto" or client_wins(subject):
        return
    if value not in ("gram", "standard"):
        fix = Fix("remove ns_method", (Remove(path),), safe=False)
        yield Fault(path, f"Muon has no ns_method {say(value)} and stops; it must be gram or standard", fix, on="value")


RULE = Rule(
    code="DSG521",
    name="unknown-ns-method",
    severity=Severity.ERROR,
    what="optimizer.params.ns_method is neither gram nor standard.",
    why="Muon stops in deepspeed.initialize with an AssertionError.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "Muon", "params": {"lr": 0.001, "ns_method": "newton"}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "Muon", "params": {"lr": 0.001, "ns_method": "standard"}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true}
}""",
    evidence=("deepspeed/runtime/zero/muon/original_muon.py (0.19.8): NS_METHODS",),
    check=check,
    since="0.19.0",
)
