"""A type of schedule that the release does not have."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity
from dsgen.shapes.near_misses import alike

__all__ = ["RULE", "check"]

_OTHER_NAMES = {"warmupcosine": "WarmupCosineLR", "cosine": "WarmupCosineLR", "linear": "WarmupDecayLR"}
_ABSTRACT = ("LRScheduler", "_LRScheduler")  # torch has them, and they fail in another way


def check(subject: Subject) -> Iterator[Fault]:
    """The type, where the release has nothing of that name."""
    name = subject.raw("scheduler.type")
    known = subject.surface
    if not isinstance(name, str) or known.forms("scheduler", name) is not None or name in _ABSTRACT:
        return
    names = (*known.classes("scheduler"), *known.classes("scheduler", torch=True))
    folded = name.lower().replace("_", "")
    meant = next((other for other in names if folded in (other.lower(), f"{other.lower()}scheduler")), None)
    best = meant or _OTHER_NAMES.get(folded) or next(iter(alike(name, names)), None)
    fix = Fix(f"write {best}", (Assign("scheduler.type", best),), safe=meant is not None) if best else None
    every = f"it has {', '.join(known.classes('scheduler'))} and those of torch"
    hint = f"; {best} is meant" if meant else f"; there is {best}" if best else f"; {every}"
    message = f"DeepSpeed {known.version} has no schedule {say(name)} and stops in deepspeed.initialize{hint}"
    yield Fault("scheduler.type", message, fix, on="value")


RULE = Rule(
    code="DSG550",
    name="unknown-scheduler",
    severity=Severity.ERROR,
    what="The schedule is neither one of DeepSpeed nor a class of torch.optim.lr_scheduler.",
    why=(
        "deepspeed.initialize stops with `DeepSpeed does not recognize LR scheduler`. The case of the letters "
        "counts, unlike with the optimizer."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "warmuplr", "params": {}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "WarmupLR", "params": {}}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _scheduler_from_config",
        "probes A_sched_unknown, A_sched_case",
    ),
    check=check,
)
