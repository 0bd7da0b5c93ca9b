"""16-bit master weights without the CPU Adam that keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.linting.rules.arguments import built_optimizer
from dsgen.linting.rules.dtypes import DTYPES, builds_optimizer, model_dtype
from dsgen.linting.rules.rule import Rule
from dsgen.linting.setups import sentence
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_INFERENCE = 3  # the stage that runs without an optimizer


def check(subject: Subject) -> Iterator[Fault]:
    """Each of the two, where the optimizer is known not to be that one."""
    if subject.stage == 0 or _unchecked(subject):
        return
    on_cpu = subject.offload("optimizer") != "none"
    built = built_optimizer(subject)
    other = built is not None and (built.title != "DeepSpeedCPUAdam" or isinstance(_zenflow(subject), Mapping))
    if on_cpu and not other:
        return
    for section in ("fp16", "bf16"):
        path = f"{section}.{section}_master_weights_and_grads"
        states = section == "bf16" and subject.value("bf16.bf16_optimizer_states") is True and not on_cpu
        if subject.value(path) is True and not states and subject.surface.key(path) is not None:
            why = sentence(subject, "masters-without-cpu-adam" if on_cpu else "masters-on-the-gpu")
            yield Fault(path, f"{why}; here is {built.title}" if on_cpu and built else why)


def _zenflow(subject: Subject) -> object:
    return subject.raw("zero_optimization.zenflow")  # its CPU Adam is a class of its own


def _unchecked(subject: Subject) -> bool:
    """Whether the optimizer is one that never looks: BF16_Optimizer at stage 1, or inference at stage 3."""
    if subject.stage == _INFERENCE and not builds_optimizer(subject):
        return True
    fp32 = DTYPES.get(str(subject.raw("data_types.grad_accum_dtype"))) == "fp32"
    return subject.stage == 1 and fp32 and model_dtype(subject) == "bf16" and subject.offload("optimizer") == "none"


RULE = Rule(
    code="DSG622",
    name="master-weights-need-cpu-adam",
    severity=Severity.ERROR,
    what=(
        "fp16_master_weights_and_grads or bf16_master_weights_and_grads is true without offload_optimizer and "
        "DeepSpeedCPUAdam."
    ),
    why=(
        'deepspeed.initialize stops with "Master weights feature requires ZeRO Offload with DeepSpeedCPUAdam", '
        "whether the section is on or off. Only bf16 with bf16_optimizer_states runs on the GPU."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true, "bf16_master_weights_and_grads": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
  "bf16": {"enabled": true, "bf16_master_weights_and_grads": true}
}""",
    evidence=(
        "deepspeed/runtime/base_optimizer.py (0.19.8): _configure_master_weights",
        "probes P_bf16_master_z2_nooff, P_bf16_master_z2_optstates, F16p_master_nooff",
    ),
    check=check,
    shows=("Master weights feature requires",),
    since="0.18.3",
)
