"""An offload section that does not say where to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Each of the two sections that is a map without a device, at a stage where it would do something."""
    for what, lowest in (("optimizer", 1), ("param", 3)):
        path = f"zero_optimization.offload_{what}"
        section = subject.raw(path)
        if not isinstance(section, Mapping) or subject.stage < lowest or "device" in section:
            continue
        device = "nvme" if section.get("nvme_path") else "cpu"
        fix = Fix(f"write device: {device}", (Assign(f"{path}.device", device),), safe=False)
        message = f"offload_{what} has no device, which is then none: DeepSpeed offloads nothing"
        yield Fault(f"{path}.device", message, fix)


RULE = Rule(
    code="DSG302",
    name="offload-without-device",
    severity=Severity.WARNING,
    what="An offload section has no device.",
    why='The device is "none" when it is not written, so the states stay on the GPU. DeepSpeed says nothing.',
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"pin_memory": true}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}}
}""",
    evidence=(
        'deepspeed/runtime/zero/offload_config.py (0.19.8): device: OffloadDeviceEnum = "none"',
        "probes T_offload_nodevice, O_ratio_z3_nodevice",
    ),
    check=check,
)
