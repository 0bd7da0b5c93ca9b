"""Offload through ordinary memory."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """pin_memory switched off beside an offload to the CPU, where the hardware is named."""
    if subject.facts.hardware is None or subject.facts.hardware.vendor == "cpu" or not subject.stage:
        return
    for what in ("optimizer", "param"):
        path = f"zero_optimization.offload_{what}.pin_memory"
        offloads = subject.offload(what) == "cpu" and (what == "optimizer" or subject.stage == 3)
        if offloads and subject.value(path) is False:
            message = "pin_memory is off: copies to and from the host go through a second buffer, and the GPU waits"
            fix = Fix("set pin_memory to true", (Assign(path, True),), safe=False)
            yield Fault(path, message, fix)


RULE = Rule(
    code="DSG814",
    name="offload-not-pinned",
    severity=Severity.WARNING,
    what="What is offloaded to the CPU is not in page-locked memory.",
    why=(
        "Only page-locked memory can be copied while the GPU computes, and at the full speed of PCIe. Switch it "
        "off where the RAM does not suffice."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": false}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}}
}""",
    evidence=(
        "CUDA C++ Best Practices Guide, Pinned Memory",
        "deepspeed/runtime/zero/offload_config.py (0.19.8): true by default",
    ),
    check=check,
    given={"hardware": "a100-40g"},
)
