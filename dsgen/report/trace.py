"""The time of a simulated step as a trace: the JSON that chrome://tracing and Perfetto open.

Source of the format: "Trace Event Format", Google, 2016: complete events ("X"), metadata ("M"), flows ("s", "f"),
counters ("C"), microseconds. What stands in one row never overlaps, and has a length: viewers that make a begin and an
end of each event (speedscope) lose their way where one has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dsgen.simulating import Interval, Timeline

__all__ = ["trace"]

_MICROSECONDS = 1e6
_DIGITS = 3  # of a microsecond: viewers count in nanoseconds
_APART = 1e-3  # microseconds between neighbours in a row: `ts + dur` as a viewer adds them may be rounded up
_PHASES = "phases of the host"
_PROCESS = 0
_TAIL = 0.25  # of what is waited for: where the arrow begins, which must lie inside of it


def trace(time: Timeline, title: str) -> str:
    """The step, one row for the phases and one for each queue, with a final newline."""
    rows = {_PHASES: 0}
    for one in time.intervals:
        rows.setdefault(one.queue, len(rows))
    events = [
        _named("process_name", 0, {"name": title}),
        *(_named("thread_name", row, {"name": name}) for name, row in rows.items()),
        *(_named("thread_sort_index", row, {"sort_index": row}) for row in rows.values()),
        *_phases(time),
        *_intervals(time, rows),
        *_flows(time, rows),
        *_memory(time),
    ]
    lines = ",\n".join(json.dumps(event) for event in events)
    return f'{{"displayTimeUnit": "ms", "traceEvents": [\n{lines}\n]}}\n'


def _named(what: str, row: int, more: dict[str, Any]) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": _PROCESS, "tid": row, "args": more}


def _phases(time: Timeline) -> Iterator[dict[str, Any]]:
    for one in time.phases:
        if not _lasts(one.begin, one.seconds):
            continue
        more = {"micro_batch": one.micro_batch, "gpu_ms": round(one.gpu_seconds * 1e3, _DIGITS)}
        yield _event(0, one.phase, "phase", one.begin, one.seconds, more)


def _intervals(time: Timeline, rows: dict[str, int]) -> Iterator[dict[str, Any]]:
    for one in time.intervals:
        if not _lasts(one.begin, one.seconds):
            continue
        more: dict[str, Any] = {"module": one.module} if one.module else {}
        if one.bytes:
            more["bytes"] = one.bytes
        if one.sizes:
            more["sizes"] = one.sizes
        if _at(one.alone) < _at(one.seconds):
            more["alone_us"] = _at(one.alone)
        yield _event(rows[one.queue], one.name, one.sort, one.begin, one.seconds, more)


def _flows(time: Timeline, rows: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Arrows from what was waited for to what waited for it, in another row."""
    for number, one in enumerate(time.intervals):
        if one.cause < 0 or not _lasts(one.begin, one.seconds):
            continue
        cause: Interval = time.intervals[one.cause]
        if not _lasts(cause.begin, cause.seconds):
            continue
        at = _at(cause.begin + (1 - _TAIL) * cause.seconds)
        flow = {"name": "waited for", "cat": "wait", "id": number, "pid": _PROCESS}
        yield {**flow, "ph": "s", "ts": at, "tid": rows[cause.queue]}
        yield {**flow, "ph": "f", "bp": "e", "ts": _at(one.begin), "tid": rows[one.queue]}


def _memory(time: Timeline) -> Iterator[dict[str, Any]]:
    for moment, size in time.memory:
        more = {"bytes": size}
        yield {"name": "tensors on the GPU", "ph": "C", "ts": _at(moment), "pid": _PROCESS, "args": more}


def _event(row: int, name: str, sort: str, begin: float, seconds: float, more: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": _at(begin), "dur": _lasts(begin, seconds)}
    return {"name": name, "cat": sort, "ph": "X", **times, "pid": _PROCESS, "tid": row, "args": more}


def _lasts(begin: float, seconds: float) -> float:
    """Microseconds from one end to just before the other, both rounded; 0 where nothing is between."""
    return max(0.0, round(_at(begin + seconds) - _at(begin) - _APART, _DIGITS))


def _at(seconds: float) -> float:
    return round(seconds * _MICROSECONDS, _DIGITS)
