"""One OpenMP thread where the optimizer may run on the CPU."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.launch_settings import launch
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """OMP_NUM_THREADS=1."""
    for setting in launch(subject).settings:
        if setting.name == "OMP_NUM_THREADS" and setting.exported and setting.value.strip() == "1":
            message = "OMP_NUM_THREADS=1 leaves one core for an offloaded optimizer: its step takes many times longer"
            yield Fault(setting.name, message, span=setting.key)


RULE = Rule(
    code="DSG956",
    name="one-thread-for-the-optimizer",
    severity=Severity.INFO,
    what="OMP_NUM_THREADS is 1, which slows an optimizer on the CPU down.",
    why=(
        "DeepSpeedCPUAdam updates the offloaded states with OpenMP. Share the cores of the node among its ranks: "
        "64 cores and 8 GPUs make 8 threads, or let `deepspeed --bind_cores_to_rank` do it. Without offload the "
        "value is fine."
    ),
    example="""export OMP_NUM_THREADS=1
deepspeed train.py""",
    instead="""export OMP_NUM_THREADS=8
deepspeed train.py""",
    evidence=("deepspeed/ops/csrc/includes/cpu_adam.h (0.19.8): #pragma omp parallel for",),
    check=check,
    reads="launch",
)
