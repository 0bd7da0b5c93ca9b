"""The time of a simulated step as a trace: the JSON that chrome://tracing and Perfetto open.

Source of the format: "Trace Event Format", Google, 2016: complete events ("X"), metadata ("M"), microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dsgen.simulating import Timeline

__all__ = ["trace"]

_MICROSECONDS = 1e6
_DIGITS = 3  # of a microsecond
_PHASES = "phases of the host"


def trace(time: Timeline, title: str) -> str:
    """The step, one row for the phases and one for each queue, with a final newline."""
    rows = {_PHASES: 0}
    for one in time.intervals:
        rows.setdefault(one.queue, len(rows))
    events = [
        _named("process_name", 0, title),
        *(_named("thread_name", row, name) for name, row in rows.items()),
        *_phases(time),
        *_intervals(time, rows),
    ]
    lines = ",\n".join(json.dumps(event) for event in events)
    return f'{{"displayTimeUnit": "ms", "traceEvents": [\n{lines}\n]}}\n'


def _named(what: str, row: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": 0, "tid": row, "args": {"name": name}}


def _phases(time: Timeline) -> Iterator[dict[str, Any]]:
    for one in time.phases:
        yield _event(0, one.phase, "phase", one.begin, one.seconds, {"micro_batch": one.micro_batch})


def _intervals(time: Timeline, rows: dict[str, int]) -> Iterator[dict[str, Any]]:
    for one in time.intervals:
        more = {"bytes": one.bytes} if one.bytes else {}
        yield _event(rows[one.queue], one.name, one.sort, one.begin, one.seconds, more)


def _event(row: int, name: str, sort: str, begin: float, seconds: float, more: dict[str, Any]) -> dict[str, Any]:
    begins, lasts = (round(moment * _MICROSECONDS, _DIGITS) for moment in (begin, seconds))
    return {"name": name, "cat": sort, "ph": "X", "ts": begins, "dur": lasts, "pid": 0, "tid": row, "args": more}
