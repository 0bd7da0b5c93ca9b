"""A section optimizer that does not say which optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.linting.rules.arguments import client_wins
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Move, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The section without a type; the key `name` where that was meant."""
    section = subject.raw("optimizer")
    if not isinstance(section, Mapping) or section.get("type") is not None:
        return
    client = client_wins(subject)
    does = "the program's own optimizer is used" if client else "it builds no optimizer and the first step fails"
    named = isinstance(section.get("name"), str) and "type" not in section
    null = "type" in section
    where = "optimizer.type" if null else "optimizer.name" if named else "optimizer"
    says = "optimizer.name is not read" if named else f"optimizer {'has type null' if null else 'has no type'}"
    fix = Fix("rename to type", (Move("optimizer.name", "optimizer.type"),)) if named else None
    message = f"{says}, so DeepSpeed ignores the section: {does}; it must say type"
    yield Fault(where, message, fix, Severity.WARNING if client else None)


RULE = Rule(
    code="DSG501",
    name="optimizer-type-missing",
    severity=Severity.ERROR,
    what="The section optimizer has no type.",
    why=(
        "DeepSpeed then builds no optimizer, whatever the params say: the parse is silent, and stage 1 and 2 stop "
        "in deepspeed.initialize, stage 0 at the first backward. `name` is not read."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"name": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "deepspeed/runtime/config.py (0.19.8): get_optimizer_name",
        "probes A_opt_name_key, A_opt_no_type_z0",
    ),
    check=check,
    shows=("requires an optimizer", "must provide optimizer during init"),
)
