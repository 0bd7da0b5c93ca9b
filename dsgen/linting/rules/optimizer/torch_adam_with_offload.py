"""torch's Adam where the optimizer is offloaded."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The argument, where it keeps the CPU optimizer away."""
    path = "optimizer.params.torch_adam"
    if subject.optimizer not in ("adam", "adamw") or not subject.raw(path) or subject.offload("optimizer") == "none":
        return
    fix = Fix("remove torch_adam", (Remove(path),), safe=False)
    said = "torch_adam keeps DeepSpeedCPUAdam away: torch updates the offloaded states on the CPU, several times slower"
    yield Fault(path, said, fix)


RULE = Rule(
    code="DSG522",
    name="torch-adam-with-offload",
    severity=Severity.WARNING,
    what="optimizer.params.torch_adam is true and offload_optimizer is on.",
    why=(
        "The states then lie in host memory and torch's own Adam updates them there, several times slower than "
        "DeepSpeedCPUAdam, which is made for it. DeepSpeed says nothing."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001, "torch_adam": true}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): get_optimizer_configuration",
        "probes O_opt_torchadam, O_opt_torchadam_z3",
    ),
    check=check,
)
