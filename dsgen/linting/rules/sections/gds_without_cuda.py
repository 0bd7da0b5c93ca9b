"""GPUDirect Storage on an accelerator that is not CUDA."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "aio.use_gds"
_NOT_CUDA = {"cpu": "a CPU", "intel": "an Intel accelerator"}


def check(subject: Subject) -> Iterator[Fault]:
    """use_gds where the accelerator is known to be another one."""
    if not subject.raw(_PATH) or subject.surface.key(_PATH) is None:
        return
    facts = subject.facts
    name = f"the accelerator is {facts.accelerator}" if facts.accelerator not in (None, "cuda") else ""
    if not name and facts.accelerator is None and facts.hardware is not None and facts.hardware.vendor in _NOT_CUDA:
        name = f"the hardware is {_NOT_CUDA[facts.hardware.vendor]}"
    if name:
        message = f"{_PATH} is on and {name}: DeepSpeed stops at the parse, for GPUDirect Storage is CUDA's"
        yield Fault(_PATH, message, Fix("set use_gds to false", (Assign(_PATH, False),)))


RULE = Rule(
    code="DSG708",
    name="gds-without-cuda",
    severity=Severity.ERROR,
    what="aio.use_gds is on for an accelerator that is not CUDA.",
    why=("The parse asserts a CUDA accelerator (ROCm counts as one), even where nothing is offloaded to NVMe."),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "aio": {"use_gds": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "aio": {"use_gds": false}
}""",
    evidence=("deepspeed/runtime/swap_tensor/aio_config.py (0.19.8)",),
    check=check,
    shows=("GDS currently only supported for CUDA",),
    given={"accelerator": "cpu"},
)
