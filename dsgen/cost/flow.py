"""When parts that pass several machines one after the other have left the last: host, network, GPU, links behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["Row", "finished", "loads"]

# Seconds of one part on every machine, and how many equal parts follow each other.
Row = tuple[int, tuple[float, ...]]


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
    if len(machines) == 2:
        return _of_two(repeated, machines[0], machines[1], free[0], free[1])
    if len(machines) == 3:
        return _of_three(zip(repeated, *machines, strict=True), *free)
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


def _of_two(
    repeated: Sequence[int], ahead: Sequence[float], behind: Sequence[float], first: float, last: float
) -> float:
    """The same for two machines, which most steps have: a host that launches, and a GPU."""
    for repeats, launches, runs in zip(repeated, ahead, behind, strict=True):
        through = first + (runs + launches) + (repeats - 1) * (launches if launches > runs else runs)
        first += repeats * launches
        last += repeats * runs
        if through > last:
            last = through
    return last


def _of_three(rows: Iterable[tuple[int, float, float, float]], first: float, second: float, last: float) -> float:
    """The same for three: where gradients leave behind a GPU."""
    for repeats, launches, runs, leaves in rows:
        more = repeats - 1
        through, slower = launches + runs, launches if launches > runs else runs
        end = last + repeats * leaves
        behind = second + (runs + leaves) + more * (leaves if leaves > runs else runs)
        if behind > end:
            end = behind
        behind = first + (through + leaves) + more * (leaves if leaves > slower else slower)
        last = behind if behind > end else end
        through += first + more * slower
        first += repeats * launches
        second += repeats * runs
        if through > second:
            second = through
    return last
