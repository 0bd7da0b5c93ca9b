"""Training in fp32 on a GPU whose speed is in 16 bit."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_WORTH = 2.0  # times faster in 16 bit; below it the GPU has no tensor cores to speak of


def check(subject: Subject) -> Iterator[Fault]:
    """Neither bf16 nor fp16 nor autocast, in a program that adds none of them."""
    hardware = subject.facts.hardware
    if hardware is None or hardware.vendor == "cpu" or subject.target.name != "deepspeed":
        return
    if any(subject.value(f"{name}.enabled") for name in ("bf16", "fp16", "torch_autocast")):
        return
    dtype = "bf16" if hardware.bf16_flops_per_second else "fp16"
    peak = max(hardware.bf16_flops_per_second, hardware.fp16_flops_per_second)
    plain, tf32 = hardware.fp32_flops_per_second, hardware.tf32_flops_per_second
    if peak >= _WORTH * plain:
        allowed = f" (1/{peak / tf32:.0f} where the program allows TF32)" if tf32 else ""
        yield Fault(
            f"{dtype}.enabled",
            f"no 16-bit dtype is on: a model in fp32 takes twice the memory and computes at 1/{peak / plain:.0f} of "
            f"this GPU's speed{allowed}",
            Fix(f"switch {dtype} on", (Assign(f"{dtype}.enabled", True),), safe=False),
        )


RULE = Rule(
    code="DSG805",
    name="fp32-on-tensor-cores",
    severity=Severity.WARNING,
    what="The config trains in fp32 on a GPU with tensor cores.",
    why=(
        "DeepSpeed keeps the model in the dtype of the program when neither bf16 nor fp16 is enabled. Tensor "
        "cores compute 16-bit products two to sixteen times faster, and weights, gradients and activations take "
        "half the memory. With Hugging Face the Trainer's arguments may switch a dtype on, and the rule is "
        "silent."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true}
}""",
    evidence=("the peaks of the hardware profile, each with its source",),
    check=check,
    given={"hardware": "a100-40g"},
)
