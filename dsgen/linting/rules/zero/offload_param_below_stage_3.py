"""Parameter offload at a stage that keeps the parameters whole."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.zero_switches import settled
from dsgen.linting.setups import refused
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """An offload_param with a device, or the old cpu_offload_param, at stage 0, 1 or 2."""
    why = refused(subject, "parameter-offload-below-stage-3")
    if why is None:
        return
    if not settled(subject) or subject.raw("zero_optimization.stage") in (None, "auto"):
        return  # the stage itself is the fault
    new = "zero_optimization.offload_param"
    path = new if subject.written(new) else "zero_optimization.cpu_offload_param"
    name = path.rpartition(".")[2]
    message = f"{why}; at stage {subject.stage} DeepSpeed ignores {name}: parameters stay on the GPU"
    yield Fault(path, message, Fix(f"remove {name}: it does nothing", (Remove(path),)))


RULE = Rule(
    code="DSG303",
    name="offload-param-below-stage-3",
    severity=Severity.WARNING,
    what="Parameters are to be offloaded, but the stage is below 3.",
    why=(
        "Only stage 3 partitions parameters, and only its partitions can move to CPU or NVMe. Below it DeepSpeed drops "
        "the section without a word, and the GPU holds all parameters. To offload them, set stage to 3."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _configure_zero_optimizer hands offload_param to stage 3 only",
        "probes O_param_stage0, O_param_stage1, O_param_stage2",
    ),
    check=check,
    shows=("parameter place",),
)
