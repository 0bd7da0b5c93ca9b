"""OneCycle, which replaces the betas of the optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The switch, where betas are written."""
    path = "scheduler.params.cycle_momentum"
    off = subject.written(path) and not subject.raw(path)
    betas = subject.raw("optimizer.params.betas")
    if subject.raw("scheduler.type") != "OneCycle" or off or not betas or subject.optimizer == "muon":
        return
    fix = Fix("write false", (Assign(path, False),), safe=False)
    said = "OneCycle replaces the optimizer's betas at every step; cycle_momentum false leaves them"
    yield Fault(path, said, fix)


RULE = Rule(
    code="DSG563",
    name="onecycle-overrides-betas",
    severity=Severity.WARNING,
    what="OneCycle cycles the momentum, as by default, and the optimizer has betas of its own.",
    why=(
        "It writes (momentum, 0.99) into the optimizer at every step, with the momentum between cycle_min_mom and "
        "cycle_max_mom: neither of the written betas is ever used."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "betas": [0.9, 0.95]}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.0001, "cycle_max_lr": 0.001}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "betas": [0.9, 0.95]}},
  "zero_optimization": {"stage": 2},
  "scheduler": {
    "type": "OneCycle",
    "params": {"cycle_min_lr": 0.0001, "cycle_max_lr": 0.001, "cycle_momentum": false}
  }
}""",
    evidence=(
        "deepspeed/runtime/lr_schedules.py (0.19.8): OneCycle._initialize_momentum",
        "DeepSpeed 0.19.8 run: betas (0.9, 0.95) become (0.8999, 0.99)",
    ),
    check=check,
)
