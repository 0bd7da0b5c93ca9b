"""Offload to NVMe on a machine without libaio."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The first offload to "nvme" at stage 3, where libaio is known to be missing."""
    if subject.stage != 3 or "libaio" not in subject.facts.missing:
        return
    for what in ("optimizer", "param"):
        path = f"zero_optimization.offload_{what}.device"
        if subject.value(path) == "nvme":
            message = (
                'device "nvme" needs DeepSpeed\'s async_io, which cannot be built here without libaio: '
                "deepspeed.initialize stops"
            )
            yield Fault(path, message, on="value")
            return


RULE = Rule(
    code="DSG307",
    name="nvme-needs-libaio",
    severity=Severity.ERROR,
    what="States are to go to NVMe, but the machine has no libaio.",
    why=(
        "DeepSpeed reads and writes NVMe through its op async_io, compiled against libaio's headers (Debian: "
        "libaio-dev). Without them: `Unable to JIT load the async_io op due to it not being compatible`."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local_nvme"}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}
}""",
    evidence=("probes O_nvme_z3_path, O_nvmeparam_z3_path; nv_z3_opt runs with libaio",),
    check=check,
    given={"missing": frozenset(("libaio",))},
)
