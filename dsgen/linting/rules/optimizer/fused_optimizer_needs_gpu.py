"""A fused optimizer on an accelerator that has no kernel for it."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import built_optimizer
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The type, where the accelerator is the CPU."""
    built = built_optimizer(subject)
    if subject.facts.accelerator == "cpu" and built is not None and built.title in ("FusedLamb", "FusedLion"):
        said = f"{built.title} has no kernel for the CPU accelerator, and deepspeed.initialize stops"
        yield Fault("optimizer.type", said, on="value")


RULE = Rule(
    code="DSG518",
    name="fused-optimizer-needs-gpu",
    severity=Severity.ERROR,
    what="Lamb, or Lion without offload, runs on the CPU accelerator.",
    why=(
        'Their kernels exist for GPUs alone: deepspeed.initialize stops with "This op had not been implemented on '
        'CPU backend". With offload_optimizer Lion has a CPU kernel.'
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "Lion", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "Lion", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}
}""",
    evidence=(
        "op_builder/cpu/no_impl.py (0.19.8)",
        "probes OPT_Lamb_z0, OPT_Lion_z2, OPT_Lion_off",
    ),
    check=check,
    shows=(r"Fused\w+Builder could not be built",),
    given={"accelerator": "cpu"},
)
