"""An argument that the optimizer which will be built does not take."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import arguments, built_optimizer, unknown
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Move, Remove, Severity
from dsgen.shapes.near_misses import alike

__all__ = ["RULE", "check"]

_OTHER_NAMES = {"learning_rate": "lr", "epsilon": "eps", "wd": "weight_decay", "adamw_mode": "adam_w_mode"}


def check(subject: Subject) -> Iterator[Fault]:
    """Every argument that ends in a TypeError."""
    built = built_optimizer(subject)
    if built is None or built.drops:
        return
    written = arguments(subject, "optimizer")
    for name in unknown(subject, "optimizer", built):
        path = f"optimizer.params.{name}"
        choices = (_OTHER_NAMES.get(name, ""), *alike(name, (*built.defaults, *built.also)))
        meant = next((other for other in choices if built.takes(other) and other not in written), None)
        said = f"; there is {meant}" if meant else f"; it takes {', '.join(built.defaults)}"
        fix = Fix(f"remove {name}", (Remove(path),), safe=False)
        if meant:
            fix = Fix(f"rename to {meant}", (Move(path, f"optimizer.params.{meant}"),), safe=False)
        yield Fault(path, f"{built.title} takes no {name} and stops in deepspeed.initialize{said}", fix)


RULE = Rule(
    code="DSG504",
    name="unknown-optimizer-argument",
    severity=Severity.ERROR,
    what="optimizer.params has an argument that the class does not know.",
    why=(
        "The arguments go to the class as they are, and it stops with a TypeError. Which class that is depends on "
        "more than the type: Adam is FusedAdam, DeepSpeedCPUAdam with offload_optimizer, and torch.optim.AdamW "
        "with torch_adam, and each takes other arguments."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001, "learning_rate": 0.0001}},
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _configure_basic_optimizer",
        "probe A_unk_optimizer_param",
    ),
    check=check,
)
