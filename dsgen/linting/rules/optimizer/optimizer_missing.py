"""A config without an optimizer where nobody else brings one."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The missing section, where the target brings no optimizer."""
    client = subject.facts.client_optimizer
    if subject.written("optimizer") or subject.target.brings_optimizer or client in ("torch", "deepspeed"):
        return
    if client is None:
        if subject.stage > 0:
            said = "the config has no optimizer, so the program must pass one to deepspeed.initialize"
            yield Fault("optimizer", said, severity=Severity.INFO)
    elif subject.stage == 3:
        said = "neither the config nor the program has an optimizer; stage 3 then sets up inference, and backward stops"
        yield Fault("optimizer", said, severity=Severity.WARNING)
    else:
        stops = f"stage {subject.stage} stops in deepspeed.initialize" if subject.stage else "the first backward stops"
        yield Fault("optimizer", f"neither the config nor the program has an optimizer, and {stops}")


RULE = Rule(
    code="DSG500",
    name="optimizer-missing",
    severity=Severity.ERROR,
    what="Neither the config nor the program has an optimizer.",
    why=(
        'Stages 1 and 2 stop in deepspeed.initialize with "zero stage 2 requires an optimizer", stage 0 at the '
        "first backward. Stage 3 without one is set up for inference, where backward stops."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _configure_zero_optimizer, backward",
        "probes Z_no_opt_z2, Z_no_opt_z3",
    ),
    check=check,
    shows=("requires an optimizer", "must provide optimizer during init"),
    given={"client_optimizer": "none"},
)
