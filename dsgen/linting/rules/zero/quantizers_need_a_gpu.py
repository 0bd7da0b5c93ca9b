"""Quantized communication of ZeRO++ without a GPU."""

from __future__ import annotations

from collections.abc import Iterator

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
        alone = subject.facts.world_size == 1 and key.endswith("gradients")  # then there is nothing to reduce
        if subject.value(path) is True and not alone:
            when = "the first step" if key.endswith("gradients") else "deepspeed.initialize"
            message = f"{key} needs DeepSpeed's quantization kernels, which the CPU backend lacks: {when} stops"
            yield Fault(path, message, Fix(f"remove {key}", (Remove(path),), safe=False))


RULE = Rule(
    code="DSG321",
    name="quantizers-need-a-gpu",
    severity=Severity.ERROR,
    what="ZeRO++ quantization is switched on where DeepSpeed runs on the CPU.",
    why="The kernels exist for GPUs only: `ValueError: This op had not been implemented on CPU backend`.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "zero_quantized_weights": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3}
}""",
    evidence=("probes ZPP_qw_z3, ZPP_qg_z3; run with zero_quantized_nontrainable_weights",),
    check=check,
    given={"accelerator": "cpu"},
)
