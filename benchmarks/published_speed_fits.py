"""What each constant that rests on published speeds is worth on a source that it was not fitted on.

For every source the constant is fitted anew on the rows of all others, and judged by those of the source: an error is
signed as on the rest of the page. Rows that are held back take no part, as in the fits themselves.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

import attrs
from published_page import table  # benchmarks/, beside this script
from published_sources import SOURCES
from published_speed_calibrated import ALIKE, foretold
from published_speed_cases import DEEPSPEED, Prediction, SpeedCase, asked, predicted
from published_speed_facts import OLDER_DISPATCH
from published_speed_figures import leave_one_source_out
from published_speed_tables import Cases

from dsgen.cost import cost
from dsgen.cost.steps import HIGH, LOW, LOW_ALIKE

__all__ = [
    "ENOUGH",
    "LEAST_MOVED",
    "Fit",
    "bounds_lines",
    "fits",
    "interval",
    "lies_in",
    "lines",
    "narrowest",
    "refitted",
    "under",
]

GATHERS = 3  # the stage whose collectives are said to hide nothing
_HALF_MICROSECOND = 0.5e-6
_DISPATCHES = tuple(number * _HALF_MICROSECOND for number in range(4, 41))  # 2 to 20 us
_SHARES = tuple(number / 20 for number in range(31))  # 0 to 1.5: above 1, they would take longer than they do alone
_NEARER = tuple(number / 100 for number in range(99, 49, -1))  # the least of measured by said, the narrowest first
LEAST_MOVED = 0.05  # a row tells of a constant where twice or half of it makes the row so much slower or faster
_HALF = 0.5
ENOUGH = 0.9  # of the rows that an interval is chosen on, so many lie in it


class Fit(NamedTuple):
    """One constant, and the rows that tell of it.

    Attributes:
        what: The constant, and by which rows it is fitted.
        tells: From a value of it to words.
        value: As it is.
        tried: Values that a fit chooses from.
        rows: Rows that depend on it.
        error: The signed error of a row under a value.
    """

    what: str
    tells: Callable[[float], str]
    value: float
    tried: Sequence[float]
    rows: Cases
    error: Callable[[SpeedCase, float], float]

    def fitted(self, rows: Sequence[SpeedCase]) -> float:
        """The value with the least median absolute error of rows; of equals the one nearest to the constant."""
        return min(
            self.tried,
            key=lambda value: (median(abs(self.error(row, value)) for row in rows), abs(value - self.value)),
        )


def fits(compared: Cases, least_moved: float = LEAST_MOVED) -> tuple[Fit, ...]:
    """Every constant of the speed model's that was fitted on published runs, but for the interval.

    Args:
        compared: The rows, also those that are held back: they are left out here.
        least_moved: How much faster half of stage 3's share makes a row that it is fitted by. Rows that it does not
            move only bring in what else is wrong with them.
    """
    seen = [case for case in compared if not case.held_back]
    older = [case for case in seen if _older(case)]
    slower = 2 * OLDER_DISPATCH
    bound = [case for case in older if 1 + _with_dispatch(case, slower) < (1 - LEAST_MOVED) * (1 + case.error)]
    gathered = [
        case for case in seen if _gathers(case) and 1 + case.error < (1 - least_moved) * (1 + _with_share(case, _HALF))
    ]
    return (
        Fit(
            "What an eager operator costs the host beside V100 and A100, by the rows that the host bounds",
            lambda value: f"{1e6 * value:.1f} us",
            OLDER_DISPATCH,
            _DISPATCHES,
            bound,
            _with_dispatch,
        ),
        Fit(
            "The share of stage 3's collectives that hides behind nothing, by rows that half of it makes 5 % faster",
            lambda value: f"{value:.2f}",
            1.0,
            _SHARES,
            gathered,
            _with_share,
        ),
    )


def lines(compared: Cases) -> list[str]:
    """The section of docs/speed.md, in Markdown."""
    told = []
    for one in fits(compared):
        head = ("source left out", "fitted on the others", "rows", "median error", "absolute", "as it is", "absolute")
        told += [f"{one.what}, {one.tells(one.value)} as it is:", "", *table(head, list(refitted(one))), ""]
    return [
        "Each constant below is fitted anew on all sources but one, and judged by that one: the errors that count, for",
        "no row of the source had a part in them. Of rows that may be looked at; the last two columns have the",
        "constant as it is. Of an interval the bounds are chosen anew: the narrowest with nine rows in ten in it.",
        "",
        *told,
        *bounds_lines([case for case in compared if not case.held_back]),
    ]


def refitted(one: Fit) -> list[tuple[str, ...]]:
    """Source, the constant without it, its rows, their errors under that, and under the constant as it is."""
    left = leave_one_source_out(one.rows, one.fitted, one.error)
    rows: list[tuple[str, ...]] = []
    for source, errors in left.items():
        value = one.fitted([row for row in one.rows if row.source != source])
        now = [one.error(row, one.value) for row in one.rows if row.source == source]
        rows.append((SOURCES[source].title, one.tells(value), str(len(errors)), *_told(errors), *_told(now)))
    rows.sort()
    unseen = [error for errors in left.values() for error in errors]
    now = [one.error(row, one.value) for row in one.rows]
    return [*rows, ("all, each without its own", "", str(len(unseen)), *_told(unseen), *_told(now))]


def bounds_lines(seen: Cases) -> list[str]:
    """How many rows of a source lie in an interval that was chosen on all others."""
    head = ("interval", "chosen on the others", "rows", "of a source left out in it", "as it is", "fewest of a source")
    return table(head, [interval(seen), _alike(seen)])


def narrowest(rows: Cases) -> float:
    """The least of the narrowest bounds that hold nine rows in ten."""
    return next(low for low in _NEARER if sum(lies_in(row, low) for row in rows) >= ENOUGH * len(rows))


def interval(seen: Cases) -> tuple[str, ...]:
    """The row of the interval that is printed beside a speed."""

    left = leave_one_source_out(seen, narrowest, lambda row, low: float(lies_in(row, low)))
    lows = {source: narrowest([row for row in seen if row.source != source]) for source in left}
    found = {source: (sum(those), len(those)) for source, those in left.items()}
    now = sum(row.within for row in seen) / len(seen)
    return _bounds("any speed", lows, found, f"{now:.0%} in {LOW:.2f} to {HIGH:.2f}")


def _alike(seen: Cases) -> tuple[str, ...]:
    """As docs/speed.md predicts runs from others of one model and as many GPUs."""
    by_source = {source: [row for row in seen if row.source == source] for source in {row.source for row in seen}}
    lows: dict[str, float] = {}
    inside: dict[str, tuple[float, int]] = {}
    for source, own in by_source.items():
        others = [row for row in seen if row.source != source]
        found = (low for low in _NEARER if _foretold(others, low) >= ENOUGH)
        lows[source] = next(found)
        told = foretold(own, ALIKE, lows[source], 1 / lows[source], held_back=False)
        if told is not None:
            inside[source] = (told.inside * told.runs, told.runs)
    return _bounds(
        "a speed from another run of its model and GPUs",
        {source: lows[source] for source in inside},
        inside,
        f"{_foretold(seen, LOW_ALIKE):.0%} in {LOW_ALIKE:.2f} to {1 / LOW_ALIKE:.2f}",
    )


def _bounds(what: str, lows: dict[str, float], inside: dict[str, tuple[float, int]], now: str) -> tuple[str, ...]:
    least, most = min(lows.values()), max(lows.values())
    said = f"{least:.2f} to {1 / least:.2f}"
    if most != least:
        said = f"{said}, at the narrowest {most:.2f} to {1 / most:.2f}"
    rows = sum(count for _, count in inside.values())
    share = math.fsum(those for those, _ in inside.values()) / rows
    worst = min(inside, key=lambda source: (inside[source][0] / inside[source][1], -inside[source][1]))
    those, count = inside[worst]
    return what, said, str(rows), f"{share:.0%}", now, f"{those / count:.0%} of {count}: {SOURCES[worst].title}"


def lies_in(row: SpeedCase, low: float) -> bool:
    """Whether a row lies in bounds that begin at `low`, wider where the host bounds it, as the printed interval is."""
    assert row.ours is not None
    below, above = row.ours.low / row.speed, row.ours.high / row.speed
    least = below if below < LOW else low
    most = above if above > HIGH else 1 / low
    return least <= row.measured / row.speed <= most


def _foretold(rows: Cases, low: float) -> float:
    told = foretold(rows, ALIKE, low, 1 / low, held_back=False)
    return told.inside if told is not None else 1.0


def _told(errors: Sequence[float]) -> tuple[str, str]:
    return f"{100 * median(errors):+.1f} %", f"{100 * median(map(abs, errors)):.1f} %"


def _parts(case: SpeedCase) -> dict[str, float]:
    assert case.ours is not None
    return dict(case.ours.parts)


@functools.cache
def _speed(name: str, deepspeed: bool, dispatch: float) -> float:
    question = asked(name)
    hardware = attrs.evolve(question.job.hardware, dispatch_seconds=dispatch)
    job: Any = attrs.evolve(question.job, hardware=hardware)
    return cost(job, question.strategy, deepspeed=deepspeed).tokens_per_second_per_gpu


def _with_dispatch(case: SpeedCase, dispatch: float) -> float:
    return _speed(case.name, case.system == DEEPSPEED, dispatch) / case.measured - 1


def under(case: SpeedCase, dispatch: float, share: float) -> SpeedCase:
    """A row as it would be said with another cost of a call to an older host, and share that hides behind nothing."""
    now = case.ours
    assert now is not None
    if dispatch != OLDER_DISPATCH and _older(case):
        now = _prediction(case.name, case.system == DEEPSPEED, dispatch)
    hidden = (1.0 - share) * now.parts.get("communication", 0.0) if case.setup["stage"] == GATHERS else 0.0
    faster = now.seconds / (now.seconds - hidden)
    speed, low, high = (faster * one for one in (now.speed, now.low, now.high))
    parts = {part: seconds - hidden * (part == "communication") for part, seconds in now.parts.items()}
    return attrs.evolve(case, ours=Prediction(speed, low, high, now.seconds - hidden, parts))


@functools.cache
def _prediction(name: str, deepspeed: bool, dispatch: float) -> Prediction:
    question = asked(name)
    hardware = attrs.evolve(question.job.hardware, dispatch_seconds=dispatch)
    return predicted(attrs.evolve(question.job, hardware=hardware), question.strategy, deepspeed)


def _older(case: SpeedCase) -> bool:
    return asked(case.name).job.hardware.dispatch_seconds == OLDER_DISPATCH


def _gathers(case: SpeedCase) -> bool:
    return case.setup["stage"] == GATHERS and _parts(case).get("communication", 0.0) > 0


def _with_share(case: SpeedCase, share: float) -> float:
    assert case.ours is not None
    hidden = (1.0 - share) * _parts(case)["communication"]
    return (1.0 + case.error) * case.ours.seconds / (case.ours.seconds - hidden) - 1
