"""What the host took for a step's phases on a card, beside what dsgen counts for them: the table of docs/gpu.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_speed_cases import asked_of, speed_case  # benchmarks/, beside this module
from gpu_speed_host import CASES

from dsgen.cost.communication import reductions
from dsgen.cost.handling import dispatches, handling
from dsgen.cost.micro_batches import node_rates, numbers_of, passes
from dsgen.cost.optimizer_step import stepped

__all__ = ["markdown", "said"]

MILLI = 1e3  # milliseconds in a second


def said(arguments: Mapping[str, Any], hardware: str) -> tuple[float, float, float]:
    """Seconds of the host that dsgen counts for forward, for backward with what is recomputed, and for the step.

    Args:
        arguments: Of `gpu_memory_cases.case_of`.
        hardware: A profile's name.
    """
    asked = asked_of(speed_case(arguments, {}), hardware, {})
    job, strategy = asked.job, asked.strategy
    each = [(one.forward, one.repeats * one.host) for one in passes(job, strategy).order]
    ahead, back = (sum(host for forward, host in each if forward is wanted) for wanted in (True, False))
    node, numbers = node_rates(job.hardware, job.network), numbers_of(job, strategy)
    host = dispatches(job, strategy, node)
    own = handling(job, strategy, node, numbers, 0, 0, reductions(job, strategy), host)
    return ahead, back + own.dispatched, stepped(job, strategy, node, numbers.trained).host


def markdown(records: Mapping[str, Any], hardware: str) -> str:
    """Every run that was looked at: its phases with short sequences, and what is counted, in milliseconds."""
    named = {speed_case(arguments, {}).name: arguments for arguments in CASES}
    lines = [
        "| run | whole | with 8 tokens | GPU busy | kernels, copies | forward | counted | backward | counted | step"
        " | counted |",
        f"| --- |{' ---: |' * 10}",
    ]
    for name, run in records["runs"].items():
        ahead, back, stepped = (MILLI * seconds for seconds in said(named[name], hardware))
        short, profiled = run["short"], run["profiled"]
        cells = [
            name, f"{MILLI * run['step']['seconds']:.0f}", f"{MILLI * short['seconds']:.0f}",
            f"{MILLI * profiled['busy_seconds']:.0f}", f"{profiled['kernels']['count']:,}",
            f"{MILLI * short['forward_seconds']:.0f}", f"{ahead:.0f}",
            f"{MILLI * short['backward_seconds']:.0f}", f"{back:.0f}",
            f"{MILLI * short['step_seconds']:.0f}", f"{stepped:.0f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
