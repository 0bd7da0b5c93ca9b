"""What a measurement made of a machine, and what the measurements of a machine made of a plan, as text and data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsgen.asking.calibrating import Calibration, basis, effect
from dsgen.cost.steps import speed_interval
from dsgen.jobs.job import Job
from dsgen.planning.planner import Plan
from dsgen.report.wrapping import fit

__all__ = ["data", "job_lines", "plan_lines", "text"]


def text(made: Calibration, written_to: str | None = None) -> str:
    """The comparison for a person, with a final newline."""
    one = made.measurement
    lines = [
        fit(f"{one.run}: {one.strategy}"),
        fit(
            f"step  measured {one.step_seconds:.4g} s, predicted {one.predicted_step_seconds:.4g} s: "
            f"x {one.step_time_ratio:.3g}"
        ),
    ]
    if one.peak_gib is not None and one.peak_memory_ratio is not None:
        lines.append(
            fit(
                f"GPU   measured {one.peak_gib:.4g} GiB {one.peak_of}, predicted {one.predicted_peak_gib:.4g} GiB: "
                f"tensors x {one.peak_memory_ratio:.3g}"
            )
        )
    if len(made.measurements) > 1:
        memory = f", tensors x {made.peak_memory_ratio:.3g}" if made.peak_memory_ratio is not None else ""
        lines.append(fit(f"with {len(made.measurements) - 1} earlier: step x {made.step_time_ratio:.3g}{memory}"))
    low, high = speed_interval(made.job)
    lines.append(fit(f"later speeds of {one.run} are said to lie between {low:.3g} and {high:.3g} of what is computed"))
    if written_to:
        lines.append(f"wrote {written_to}. Next: dsgen plan --hw {written_to} ...")
    return "\n".join(lines) + "\n"


def job_lines(job: Job) -> Iterator[str]:
    """What a job's machine was measured by; nothing where nobody measured."""
    if job.hardware.calibrated:
        yield fit(basis(job))


def plan_lines(plan: Plan) -> Iterator[str]:
    """What the measurements of a plan's machine changed; nothing where nobody measured."""
    if plan.job.hardware.calibrated:
        yield fit(effect(plan).words)


def data(plan: Plan) -> dict[str, Any] | None:
    """The same as plain JSON types; None where nobody measured."""
    if not plan.job.hardware.calibrated:
        return None
    made = effect(plan)
    return {
        "step_time_ratio": made.step_time_ratio,
        "peak_memory_ratio": made.peak_memory_ratio,
        "basis": made.basis,
        "strategy_without": made.without,
        "changed": made.changed,
    }
