"""How well speeds are said: errors, pairs in their measured order, regret, and what a fit makes of unseen rows.

Pure arithmetic on rows: anything with `speed` and `measured` in tokens/s/GPU, a `source` and a `setup` of facts.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

__all__ = [
    "Agreement",
    "Pair",
    "Regret",
    "Row",
    "agreement",
    "fastest",
    "leave_one_source_out",
    "ordered",
    "pairs",
    "regrets",
]

CLEAR = 0.05  # measured speeds nearer to each other than this are no pair: one of them is not clearly faster


class Row(Protocol):
    """One measured speed and what is said of it."""

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def setup(self) -> Mapping[str, Any]: ...
    @property
    def measured(self) -> float: ...
    @property
    def speed(self) -> float: ...
    @property
    def within(self) -> bool: ...


R = TypeVar("R", bound=Row)
Constants = TypeVar("Constants")


class Agreement(NamedTuple):
    """Rows together.

    Attributes:
        count: Rows.
        median: Median of the signed errors: above 0 where dsgen says faster.
        absolute: Median of their sizes.
        within: Share of the measured speeds that lie in the printed interval.
    """

    count: int
    median: float
    absolute: float
    within: float


class Pair(NamedTuple):
    """Two runs of one setup that differ in one thing.

    Attributes:
        what: In which.
        faster, slower: Their names, as measured.
        measured: How many times faster.
        said: As dsgen says; below 1 where it has them the other way round.
    """

    what: str
    faster: str
    slower: str
    measured: float
    said: float

    @property
    def right(self) -> bool:
        """Whether dsgen has them in the measured order."""
        return self.said > 1


class Regret(NamedTuple):
    """Strategies of one job that a source measured, and the one that dsgen would pick among them.

    Attributes:
        source: Who measured.
        names: The rows.
        pick, best: The fastest as dsgen says, and as measured.
        cost: How much longer the pick takes: 0 where it is the best.
    """

    source: str
    names: tuple[str, ...]
    pick: str
    best: str
    cost: float


def error(row: Row) -> float:
    """The signed error of a speed."""
    return row.speed / row.measured - 1


def agreement(rows: Iterable[Row]) -> Agreement:
    """Rows together; at least one.

    Raises:
        statistics.StatisticsError: There is none.
    """
    those = list(rows)
    errors = [error(row) for row in those]
    return Agreement(
        count=len(those),
        median=statistics.median(errors),
        absolute=statistics.median(map(abs, errors)),
        within=sum(row.within for row in those) / len(those),
    )


def pairs(rows: Iterable[Row], what: str, *besides: str) -> list[Pair]:
    """Runs of one source that differ clearly in measured speed, and in one fact of their setups alone.

    Args:
        rows: The runs.
        what: The fact in which they differ.
        besides: Facts in which they may differ too.
    """
    found = []
    for those in _alike(rows, (what, *besides)):
        for one, other in itertools.combinations(those, 2):
            if one.setup[what] == other.setup[what]:
                continue
            faster, slower = (one, other) if one.measured > other.measured else (other, one)
            measured = faster.measured / slower.measured
            if measured > 1 + CLEAR:
                found.append(Pair(what, faster.name, slower.name, measured, faster.speed / slower.speed))
    return found


def ordered(those: Sequence[Pair]) -> float:
    """The share of pairs that are said in their measured order."""
    return sum(pair.right for pair in those) / len(those)


def fastest(those: Sequence[R]) -> R:
    """The row that is said to be the fastest; of equals the slowest as measured."""
    return max(those, key=lambda row: (row.speed, -row.measured))


def regrets(
    rows: Iterable[R],
    strategy: Sequence[str],
    doubt: Callable[[R], float] = lambda _: 0.0,
    choose: Callable[[Sequence[R]], R] = fastest,
) -> list[Regret]:
    """For every job of which several strategies were measured, what it costs to take dsgen's fastest among them.

    Where dsgen says that several are equally fast, the slowest of them counts: nothing tells a person to take another.

    Args:
        rows: Rows of several jobs.
        strategy: The facts of a setup that a strategy decides; the others are the job's.
        doubt: How little dsgen says that a row fits: it takes one of the least, and none where that is infinite.
        choose: Which of those it takes.
    """
    found = []
    for those in _alike(rows, strategy):
        if len({_facts(row, strategy) for row in those}) > 1:
            best = max(those, key=lambda row: row.measured)
            least = min(map(doubt, those))
            if least == math.inf:
                continue
            pick = choose([row for row in those if doubt(row) == least])
            names = tuple(row.name for row in those)
            found.append(Regret(best.source, names, pick.name, best.name, best.measured / pick.measured - 1))
    return found


def leave_one_source_out(
    rows: Sequence[R], fit: Callable[[Sequence[R]], Constants], error_of: Callable[[R, Constants], float]
) -> dict[str, list[float]]:
    """What constants are worth on a source that they were not fitted on.

    Args:
        rows: All rows; those that are held back are best left out.
        fit: From rows to constants.
        error_of: The signed error of a row under constants.

    Returns:
        Source -> the errors of its rows, under constants fitted on the rows of all others.
    """
    found = {}
    for source in dict.fromkeys(row.source for row in rows):
        constants = fit([row for row in rows if row.source != source])
        found[source] = [error_of(row, constants) for row in rows if row.source == source]
    return found


def _alike(rows: Iterable[R], but: Sequence[str]) -> list[list[R]]:
    """Rows of one source whose setups differ at most in these facts; two or more each."""
    groups: dict[tuple[Any, ...], list[R]] = {}
    for row in rows:
        rest = tuple(value for fact, value in row.setup.items() if fact not in but)
        groups.setdefault((row.source, rest), []).append(row)
    return [those for those in groups.values() if len(those) > 1]


def _facts(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row.setup[name] for name in names)
