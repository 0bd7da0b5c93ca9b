"""A 1-bit optimizer, which DeepSpeed no longer has."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import ONE_BIT, arguments, client_wins
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Edit, Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The type, where it is one of the three; the arguments only they had go with it."""
    name = subject.raw("optimizer.type")
    if not isinstance(name, str) or name.lower() not in ONE_BIT or client_wins(subject):
        return
    after = "Lamb" if name.lower() == "onebitlamb" else "Adam"
    taken = subject.surface.forms("optimizer", after) or ({"params": {}},)
    gone = (key for key in arguments(subject, "optimizer") if key not in taken[0]["params"])
    edits: tuple[Edit, ...] = (Assign("optimizer.type", after), *(Remove(f"optimizer.params.{key}") for key in gone))
    message = f"DeepSpeed 0.19.7 removed {name}, and deepspeed.initialize stops; {after} is left"
    yield Fault("optimizer.type", message, Fix(f"use {after}", edits, safe=False), on="value")


RULE = Rule(
    code="DSG503",
    name="removed-optimizer",
    severity=Severity.ERROR,
    what="OneBitAdam, ZeroOneAdam and OneBitLamb were removed in 0.19.7.",
    why=(
        "deepspeed.initialize stops with `OneBitAdam is not a supported DeepSpeed Optimizer`. What they saved in "
        "communication, ZeRO++ saves at stage 3 with quantized gradients."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "OneBitAdam", "params": {"lr": 0.0001, "freeze_step": 400}},
  "zero_optimization": {"stage": 0}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "Adam", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 0}
}""",
    evidence=(
        "deepspeed 0.19.7: runtime/fp16/onebit is gone",
        "probes OPT_OneBitAdam, OPT_ZeroOneAdam, OPT_OneBitLamb",
    ),
    check=check,
    since="0.19.7",
)
