"""The RAM of a process on a real card beside what dsgen says of it: the runs that offload, for a page of the docs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsgen.memory.limits import RANK_PROCESS_BYTES

__all__ = ["besides", "markdown"]

GIB = 2**30


def besides(record: Mapping[str, Any]) -> int:
    """Bytes that a run's process held at most beside its tensors and what torch keeps page-locked."""
    simulated = record["simulated"]
    return int(record["measured"]["rss_bytes"] - simulated["host_bytes"] - simulated.get("host_reserve_bytes", 0))


def markdown(records: Mapping[str, Mapping[str, Any]]) -> str:
    """The runs with an optimizer or parameters in RAM, and what the other processes held, in a sentence."""
    told = {name: one for name, one in records.items() if "rss_bytes" in (one.get("measured") or {})}
    away = {name: one for name, one in told.items() if "host_reserve_bytes" in one["simulated"]}
    lines = [
        "| case | RAM GiB | tensors | torch's reserve | process | error |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, one in away.items():
        rss, simulated = one["measured"]["rss_bytes"], one["simulated"]
        parts = simulated["host_bytes"], simulated["host_reserve_bytes"], RANK_PROCESS_BYTES
        error = sum(parts) / rss - 1
        cells = [name, *(f"{size / GIB:.2f}" for size in (rss, *parts)), f"{error:+.1%}"]
        lines.append(f"| {' | '.join(cells)} |")
    without = [besides(one) for name, one in told.items() if name not in away]
    most = f"{max(without) / GIB:.2f}"
    lines += [
        "",
        f"Of {len(without)} runs that offload nothing no process held more than {most} GiB beside its tensors.",
    ]
    return "\n".join(lines) + "\n"
