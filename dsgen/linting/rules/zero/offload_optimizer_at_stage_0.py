"""Optimizer offload at stage 0."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.zero_switches import ADAMS, settled
from dsgen.linting.setups import refused
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_ON_CPU = (*ADAMS, "lion", "adagrad")  # types of which DeepSpeed takes a CPU version when it offloads


def check(subject: Subject) -> Iterator[Fault]:
    """An offload_optimizer with a device, or the old cpu_offload, at stage 0."""
    why = refused(subject, "optimizer-offload-at-stage-0")
    if why is None or not settled(subject):
        return
    new = "zero_optimization.offload_optimizer"
    path = new if subject.written(new) else "zero_optimization.cpu_offload"
    own = subject.optimizer in _ON_CPU and subject.raw("optimizer.params.torch_adam") is not True
    dies = own and subject.facts.accelerator != "cpu"
    if not dies and subject.raw("zero_optimization.stage") in (None, "auto"):
        return  # the stage itself is the fault
    outcome = (
        "takes its CPU optimizer for parameters that are on the GPU, and stops in the first step"
        if dies
        else "the states stay where the parameters are"
    )
    fix = Fix("write stage: 1", (Assign("zero_optimization.stage", 1),), safe=False)
    yield Fault(path, f"{why}, {outcome}", fix, Severity.ERROR if dies else None)


RULE = Rule(
    code="DSG304",
    name="offload-optimizer-at-stage-0",
    severity=Severity.WARNING,
    what="The optimizer is to be offloaded, but nothing is partitioned.",
    why=(
        "The offload is part of stages 1 to 3. Stage 0 still picks DeepSpeedCPUAdam, CPULion or CPUAdagrad for the "
        "optimizer that the config names, and these assert that parameters are on the CPU: on a GPU the first step "
        "ends in `CPUAdam param is on cuda:0 and must be 'cpu'`."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): get_optimizer_configuration asks for the device, not for the stage",
        "deepspeed/ops/adam/cpu_adam.py (0.19.8): step; probe O_opt_stage0 (on a CPU it runs)",
    ),
    check=check,
    shows=("optimizer state place",),
)
