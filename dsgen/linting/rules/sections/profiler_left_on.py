"""Profilers that stay on for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_FLOPS = "flops_profiler.enabled"
_COMMS = "comms_logger.enabled"


def check(subject: Subject) -> Iterator[Fault]:
    """The FLOPS profiler and the communication logger; a warning where another key says the opposite."""
    if subject.raw(_FLOPS) is True:
        said = subject.raw("wall_clock_breakdown") is False
        message = (
            f"{_FLOPS} switches wall_clock_breakdown on for every step, not only for profile_step"
            f"{', although wall_clock_breakdown is false' if said else ''}"
        )
        fix = Fix("switch flops_profiler off", (Assign(_FLOPS, False),), safe=False)
        yield Fault(_FLOPS, message, fix, Severity.WARNING if said else None)
    if subject.on("comms_logger"):
        overlap = subject.raw("zero_optimization.overlap_comm") is True and subject.stage > 0
        verbose = subject.value("comms_logger.verbose") is True
        message = f"{_COMMS} waits for the GPU after every collective, so that none runs beside the computation"
        if overlap:
            message += ", whatever zero_optimization.overlap_comm says"
        if verbose:
            message += "; verbose prints a line for each"
        fix = Fix("switch comms_logger off", (Assign(_COMMS, False),), safe=False)
        yield Fault(_COMMS, message, fix, Severity.WARNING if overlap or verbose else None)


RULE = Rule(
    code="DSG713",
    name="profiler-left-on",
    severity=Severity.INFO,
    what="A profiler is on: right for a measurement, slow for the run after it.",
    why=(
        "The FLOPS profiler measures one step and leaves wall_clock_breakdown on for all others. The "
        "communication logger synchronises the device after each collective, which undoes overlap_comm. It is a "
        "warning where the file asks for the opposite beside it, or prints every collective."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "comms_logger": {"enabled": true, "verbose": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "comms_logger": {"enabled": false}
}""",
    evidence=("deepspeed/comm/comm.py (timed_op) and runtime/config.py, _initialize_params (0.19.8)",),
    check=check,
)
