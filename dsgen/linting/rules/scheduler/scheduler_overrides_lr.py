"""A schedule with a learning rate of its own, other than the optimizer's."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.arguments import number, peak
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The schedule's peak, where both are written and differ."""
    schedule_peak = peak(subject)
    rate = number(subject.raw("optimizer.params.lr"))
    if schedule_peak is None or rate is None or not subject.written(schedule_peak[0]):
        return
    path, value = schedule_peak
    own = number(value)
    if own is not None and own != rate:
        name = path.rpartition(".")[2]
        said = f"{name} is {say(value)} and takes the place of the optimizer's lr {say(rate)}, which is never used"
        yield Fault(path, said, Fix(f"write {say(rate)}", (Assign(path, rate),), safe=False), on="value")


RULE = Rule(
    code="DSG559",
    name="scheduler-overrides-lr",
    severity=Severity.WARNING,
    what="The schedule's learning rate and optimizer.params.lr differ.",
    why=(
        "The schedule writes its own into the optimizer before the first step and at every step after it, without "
        "a word: the optimizer's is never used."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-05}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.001, "warmup_num_steps": 100}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.001, "warmup_num_steps": 100}}
}""",
    evidence=(
        "deepspeed/runtime/lr_schedules.py (0.19.8): update_lr",
        "probe SCH_overrides_lr",
    ),
    check=check,
)
