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
    repeated = [repeats for repeats, _ in rows]
    machines = [spent for spent in zip(*[spent for _, spent in rows], strict=True) if any(spent)]
    if len(machines) == 2:
        return _of_two(repeated, *machines)
    free = [0.0] * len(machines)
    for row, repeats in enumerate(repeated):
        ends = []
        for last in range(len(machines)):
            total = slowest = best = 0.0
            for first in range(last, -1, -1):
                takes = machines[first][row]
                total += takes
                if takes > slowest:
                    slowest = takes
                end = free[first] + total + (repeats - 1) * slowest
                if end > best:
                    best = end
            ends.append(best)
        free = ends
    return free[-1] if free else 0.0


def _of_two(repeated: Sequence[int], ahead: Sequence[float], behind: Sequence[float]) -> float:
    """The same for two machines, which most steps have: a host that launches, and a GPU."""
    first = last = 0.0
    for repeats, launches, runs in zip(repeated, ahead, behind, strict=True):
        through = first + (runs + launches) + (repeats - 1) * (launches if launches > runs else runs)
        first += repeats * launches
        last += repeats * runs
        if through > last:
            last = through
    return last
