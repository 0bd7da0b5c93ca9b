"""When parts that pass several machines one after the other have left the last: host, network, GPU, links behind."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["QueuedRow", "Row", "finished", "loads", "queued"]

# Seconds of one part on every machine, and how many equal parts follow each other.
Row = tuple[int, tuple[float, ...]]
# The same of the host, the link before the GPU, the GPU, and the network and the link behind it.
QueuedRow = tuple[int, tuple[float, float, float, float]]


def queued(rows: Sequence[QueuedRow], lag: float = 0.0) -> float:
    """`finished` of the four machines of a step; in one go where nothing is fetched, as of most.

    Args:
        rows: The parts.
        lag: Seconds for which the GPU still has other work when the first part comes.
    """
    host, device, last = 0.0, lag, 0.0
    for repeats, (launches, fetched, runs, leaves) in rows:
        if fetched:
            return finished(rows, (0.0, 0.0, lag, 0.0))
        more = repeats - 1
        through, slower = launches + runs, launches if launches > runs else runs
        if leaves:
            last += repeats * leaves
            end = device + (runs + leaves) + more * (leaves if leaves > runs else runs)
            if end > last:
                last = end
            end = host + (through + leaves) + more * (leaves if leaves > slower else slower)
            if end > last:
                last = end
        through += host + more * slower
        host += repeats * launches
        device += repeats * runs
        if through > device:
            device = through
    return last if last > device else device


def finished(rows: Sequence[Row], busy: Sequence[float] = ()) -> float:
    """Seconds until the last part has left the last machine.

    A machine does one part at a time, in order, and each part passes all machines in order. Of a run of equal parts
    the longest way is known: each machine once, and the slowest of those passed again for every further part.

    Args:
        rows: The parts.
        busy: Seconds for which each machine still has other work when the first part comes; none where nothing is said.
    """
    repeated = [repeats for repeats, _ in rows]
    columns = list(zip(*[spent for _, spent in rows], strict=True))
    kept = [number for number, spent in enumerate(columns) if any(spent) or (busy and busy[number])]
    machines = [columns[number] for number in kept]
    free = [busy[number] if busy else 0.0 for number in kept]
    for row, repeats in enumerate(repeated):
        if repeats == 1:
            end = 0.0
            for machine, spent in enumerate(machines):
                left = free[machine]
                free[machine] = end = (left if left > end else end) + spent[row]
            continue
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


def loads(rows: Sequence[Row]) -> tuple[float, ...]:
    """Seconds that each machine works."""
    totals = [0.0] * len(rows[0][1])
    for repeats, spent in rows:
        for machine, seconds in enumerate(spent):
            totals[machine] += repeats * seconds
    return tuple(totals)
