"""A schedule of torch around an optimizer that DeepSpeed wraps."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import built_schedule
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The type, where the optimizer is wrapped for certain."""
    built = built_schedule(subject)
    half = next((name for name in ("fp16", "bf16") if subject.on(name)), None)
    if built is None or not built.torch or (subject.stage == 0 and half is None):
        return
    why = f"ZeRO stage {subject.stage}" if subject.stage else half
    own = ", ".join(subject.surface.classes("scheduler"))
    said = f"{subject.raw('scheduler.type')} is torch's and refuses what {why} makes of the optimizer; there is {own}"
    yield Fault("scheduler.type", said, on="value")


RULE = Rule(
    code="DSG562",
    name="torch-scheduler-with-wrapper",
    severity=Severity.ERROR,
    what="The schedule is a class of torch.optim.lr_scheduler, and ZeRO, bf16 or fp16 is on.",
    why=(
        "torch asks for a torch.optim.Optimizer, and the wrappers of DeepSpeed are none: deepspeed.initialize "
        "stops with `DeepSpeedZeroOptimizer is not an Optimizer`. At stage 0 in fp32 it works."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "scheduler": {"type": "StepLR", "params": {"step_size": 10}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 0},
  "scheduler": {"type": "StepLR", "params": {"step_size": 10}}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _configure_lr_scheduler",
        "probes SCH_torch, SCH_torch_z0, SCH_torch_bf16z0",
    ),
    check=check,
    shows=("is not an Optimizer",),
)
