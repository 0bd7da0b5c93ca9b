"""bf16 optimizer states without bf16 master weights."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.setups import refused
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The key, where its partner is off."""
    path, partner = "bf16.bf16_optimizer_states", "bf16.bf16_master_weights_and_grads"
    why = refused(subject, "states-without-masters")
    if why is not None and subject.stage and subject.value(partner) is False:
        fix = Fix("switch bf16_master_weights_and_grads on", (Assign(partner, True),), safe=False)
        yield Fault(path, why, fix)


RULE = Rule(
    code="DSG623",
    name="optimizer-states-without-master",
    severity=Severity.ERROR,
    what="bf16.bf16_optimizer_states is true and bf16_master_weights_and_grads is not.",
    why="The parse stops: the states can only be as short as the master weights.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true, "bf16_optimizer_states": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true, "bf16_optimizer_states": true, "bf16_master_weights_and_grads": true}
}""",
    evidence=(
        "deepspeed/runtime/config.py (0.19.8): _do_error_check",
        "probe P_bf16_optstates_alone",
    ),
    check=check,
    since="0.18.3",
)
