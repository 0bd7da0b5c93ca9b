"""The AMSGrad variant, which the fused and the CPU Adam do not have."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import built_optimizer
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The argument, where it is on and refused."""
    built = built_optimizer(subject)
    path = "optimizer.params.amsgrad"
    if built is None or subject.raw(path) is not True or not built.title.startswith(("Fused", "DeepSpeedCPUAdam")):
        return
    if built.takes("amsgrad"):
        fix = Fix("remove amsgrad", (Remove(path),), safe=False)
        yield Fault(path, f"{built.title} has no AMSGrad and stops; torch_adam chooses torch's, which has it", fix)


RULE = Rule(
    code="DSG511",
    name="amsgrad-unsupported",
    severity=Severity.ERROR,
    what="optimizer.params.amsgrad is true where the class refuses it.",
    why=(
        "FusedAdam, FusedLamb and DeepSpeedCPUAdam stop in deepspeed.initialize with a RuntimeError. torch's own "
        "Adam has the variant: torch_adam chooses it, and is slow under offload."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001, "amsgrad": true}},
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001, "amsgrad": true, "torch_adam": true}},
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "deepspeed/ops/adam/fused_adam.py (0.19.8): __init__",
        "probe OPT_amsgrad",
    ),
    check=check,
)
