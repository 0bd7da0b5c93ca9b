"""Timers and memory reports that cost time in every step."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_COSTS = {
    "wall_clock_breakdown": "waits for the GPU and prints a line after every micro-batch",
    "memory_breakdown": "runs Python's garbage collector on rank 0 and prints the memory six times a micro-batch",
}
_CHECKS = "zero_optimization.enable_sanity_checks"


def check(subject: Subject) -> Iterator[Fault]:
    """Each switch that is on."""
    for path, cost in _COSTS.items():
        if subject.raw(path) is True:
            yield _fault(path, cost)
    if subject.stage == 3 and subject.surface.key(_CHECKS) is not None and subject.value(_CHECKS) is True:
        yield _fault(_CHECKS, "compares the parameters of every gradient bucket among all ranks before it is reduced")


def _fault(path: str, cost: str) -> Fault:
    name = path.rpartition(".")[2]
    fix = Fix(f"switch {name} off", (Assign(path, False),), safe=False)
    return Fault(path, f"{path} {cost}; it is meant for debugging", fix)


RULE = Rule(
    code="DSG712",
    name="timers-left-on",
    severity=Severity.INFO,
    what="A switch for debugging is on that slows every step down.",
    why=(
        "wall_clock_breakdown blocks the host on GPU events, so that it cannot prepare the next kernels "
        "meanwhile. memory_breakdown runs a full garbage collection around forward, backward and step. "
        "enable_sanity_checks adds a collective and a wait to each bucket of stage 3. All three are useful for a "
        "few steps and a loss in a long run."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "wall_clock_breakdown": true
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "wall_clock_breakdown": false
}""",
    evidence=(("deepspeed/utils/timer.py, runtime/utils.py (see_memory_usage) and runtime/zero/stage3.py (0.19.8)"),),
    check=check,
)
