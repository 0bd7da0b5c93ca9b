"""A schedule that climbs to a learning rate that nobody wrote."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.arguments import number, peak
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The peak that is a default, where the optimizer's rate is another."""
    schedule_peak = peak(subject)
    if schedule_peak is None or subject.written(schedule_peak[0]):
        return
    path, value = schedule_peak
    name = path.rpartition(".")[2]
    rate = subject.raw("optimizer.params.lr")
    if rate is None or number(rate) == number(value) or (number(rate) is None and rate != "auto"):
        return
    said = f"{subject.raw('scheduler.type')} climbs to {say(value)}, {name}'s default, not to the optimizer's lr"
    yield Fault(path, said, Fix(f"add {name}", (Assign(path, rate),), safe=False))


RULE = Rule(
    code="DSG560",
    name="schedule-peak-missing",
    severity=Severity.WARNING,
    what="The schedule has no peak of its own in the config and does not follow the optimizer.",
    why=(
        "WarmupDecayLR without warmup_max_lr climbs to 0.001 whatever the optimizer says, for fine-tuning far too "
        "high; WarmupLR did so before 0.17.2 and follows the optimizer since. LRRangeTest starts at 0.001."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-05}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 10000}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-05}},
  "zero_optimization": {"stage": 2},
  "scheduler": {
    "type": "WarmupDecayLR",
    "params": {"total_num_steps": 10000, "warmup_max_lr": 1e-05}
  }
}""",
    evidence=(
        "deepspeed/runtime/lr_schedules.py (0.19.8): WarmupDecayLR",
        "probes SCH_decay_maxabsent, SCH_max_lr_absent",
    ),
    check=check,
)
