"""What the host took for a step's phases on a card, beside what dsgen counts for them: the table of docs/gpu.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from gpu_speed_cases import asked_of, speed_case  # benchmarks/, beside this module
from gpu_speed_host import CASES

from dsgen.cost.micro_batches import passes

__all__ = ["DISPATCH_SECONDS", "markdown", "said"]

DISPATCH_SECONDS = 11e-6  # of the host beside the H200, of which HOST of dsgen.kernels is 0.74
MILLI = 1e3  # milliseconds in a second


def said(arguments: Mapping[str, Any], hardware: str, dispatch_seconds: float | None) -> tuple[float, float]:
    """Seconds of the host that dsgen counts for forward, and for backward with what is recomputed.

    Args:
        arguments: Of `gpu_memory_cases.case_of`.
        hardware: A profile's name.
        dispatch_seconds: Of an operator; None for that of an unknown host.
    """
    host = {"dispatch_seconds": dispatch_seconds} if dispatch_seconds else {}
    asked = asked_of(speed_case(arguments, {}), hardware, {})
    job = attrs.evolve(asked.job, hardware=attrs.evolve(asked.job.hardware, **host))
    each = [(one.forward, one.repeats * one.host) for one in passes(job, asked.strategy).order]
    return sum(host for ahead, host in each if ahead), sum(host for ahead, host in each if not ahead)


def markdown(records: Mapping[str, Any], hardware: str) -> str:
    """Every run that was looked at: its phases with short sequences, and what is counted, in milliseconds."""
    named = {speed_case(arguments, {}).name: arguments for arguments in CASES}
    lines = [
        "| run | step | with 8 tokens | GPU busy | launches | forward | counted | backward | counted |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, run in records["runs"].items():
        ahead, back = (MILLI * seconds for seconds in said(named[name], hardware, DISPATCH_SECONDS))
        short, profiled = run["short"], run["profiled"]
        cells = [
            name, f"{MILLI * run['step']['seconds']:.0f}", f"{MILLI * short['seconds']:.0f}",
            f"{MILLI * profiled['busy_seconds']:.0f}", f"{profiled['kernels']['count']:,}",
            f"{MILLI * short['forward_seconds']:.0f}", f"{ahead:.0f}",
            f"{MILLI * short['backward_seconds']:.0f}", f"{back:.0f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
