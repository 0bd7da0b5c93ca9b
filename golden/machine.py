"""How slow a machine is, by work of which nothing is dsgen's; bounds of time are those of the machine of the record."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence

__all__ = ["CONTROL", "control_slowness", "cpu_seconds", "import_slowness"]

# A start that imports what dsgen imports, and nothing of dsgen. A bare interpreter says too little of a machine: on two
# of them it takes 18 and 13 CPU ms, and this 104 and 90, of which a cold render is 2.1, a plan 3.1 and 3.0 times.
CONTROL = (sys.executable, "-c", "import attrs, cattrs, click, json")


def cpu_seconds(command: Sequence[str]) -> float:
    """CPU seconds of a process and its children, user and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def control_slowness(control_seconds: float, recorded: Mapping[str, float]) -> float:
    """How many times as long the control takes as on the machine of the record; at least 1: of CPU seconds.

    Args:
        control_seconds: CPU seconds of the control.
        recorded: `results` of benchmarks/results.json.
    """
    return max(1.0, control_seconds * 1e3 / (recorded["control_ratio"] * recorded["python_cpu_ms"]))


def import_slowness(control_ratio: float, recorded: Mapping[str, float]) -> float:
    """The same by a bare interpreter: of what is told by one.

    Args:
        control_ratio: The control's CPU seconds by those of a bare interpreter.
        recorded: As for `control_slowness`.
    """
    return max(1.0, control_ratio / recorded["control_ratio"])
