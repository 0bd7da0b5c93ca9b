"""When parts that pass several machines one after the other have left the last: host, network, GPU, links behind."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Row", "finished"]

# Seconds of one part on every machine, and how many equal parts follow each other.
Row = tuple[int, tuple[float, ...]]


def finished(rows: Sequence[Row]) -> float:
    """Seconds until the last part has left the last machine.

    A machine does one part at a time, in order, and each part passes all machines in order. Of a run of equal parts
    the longest way is known: each machine once, and the slowest of those passed again for every further part.
    """
    used = [place for place in range(len(rows[0][1])) if any(spent[place] for _, spent in rows)]
    free = [0.0] * len(used)
    for repeats, spent in rows:
        ends = []
        for last in range(len(used)):
            total = slowest = best = 0.0
            for first in range(last, -1, -1):
                takes = spent[used[first]]
                total += takes
                if takes > slowest:
                    slowest = takes
                end = free[first] + total + (repeats - 1) * slowest
                if end > best:
                    best = end
            ends.append(best)
        free = ends
    return free[-1] if free else 0.0
