"""Quantized communication of ZeRO++ without a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.described import nodes
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_KEYS = ("zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients")


def check(subject: Subject) -> Iterator[Fault]:
    """Every quantization that is switched on at stage 3 on a CPU."""
    if subject.stage != 3 or subject.facts.accelerator != "cpu":
        return
    for key in _KEYS:
        path = f"zero_optimization.{key}"
        if subject.value(path) is not True:
            continue
        fix = Fix(f"remove {key}", (Remove(path),), safe=False)
        lacks = f"{key} needs DeepSpeed's quantization kernels, which the CPU backend lacks"
        if not key.endswith("gradients"):
            yield Fault(path, f"{lacks}: deepspeed.initialize stops", fix)
        elif subject.facts.world_size == 1:  # a single rank has nothing to reduce
            continue
        elif subject.facts.hardware is None or nodes(subject) > 1:
            yield Fault(path, f"{lacks}: the first step stops", fix)
        else:
            said = (
                f"{lacks}: the first step stops where DeepSpeed counts several nodes, as without LOCAL_SIZE on a "
                "machine of one NUMA node; within one node gradients are not quantized at all"
            )
            yield Fault(path, said, fix, severity=Severity.WARNING)


RULE = Rule(
    code="DSG321",
    name="quantizers-need-a-gpu",
    severity=Severity.ERROR,
    what="ZeRO++ quantization is switched on where DeepSpeed runs on the CPU.",
    why=(
        "The kernels exist for GPUs only: `ValueError: This op had not been implemented on CPU backend`. Gradients are "
        "quantized between nodes alone, and a node has as many ranks as LOCAL_SIZE says, which deepspeed's launcher "
        "sets; without it, as many as the machine has NUMA nodes."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "zero_quantized_weights": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3}
}""",
    evidence=(
        "probes ZPP_qw_z3, ZPP_qg_z3; run with zero_quantized_nontrainable_weights",
        "deepspeed/runtime/zero/stage3.py (0.19.8): __avg_scatter_grads; cpu_accelerator.py: device_count",
    ),
    check=check,
    given={"accelerator": "cpu"},
)
