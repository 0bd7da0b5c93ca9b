"""What the speed model is worth on a source of which nothing was known: all that was fitted fitted without it, at once.

For every source the constants that rest on published speeds are fitted anew on the rows of all others, each under the
other, and on the same rows the narrowest interval; the rows of the source are said with these. Rows that are held back
take no part in a fit, and are judged like the others of their source.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from published_page import table  # benchmarks/, beside this script
from published_sources import SOURCES
from published_speed_cases import DEEPSPEED, SpeedCase
from published_speed_fits import LEAST_MOVED, Fit, fits, lies_in, narrowest, under
from published_speed_tables import Cases, figures

__all__ = ["Constants", "judged", "lines", "without"]

_OTHER_ROWS = (0.0, 0.025, LEAST_MOVED, 0.075, 0.1)  # by how much a row must be moved to have a part in a fit
MOST_ROUNDS = 10  # of fitting each constant under the other; three were enough


class Constants(NamedTuple):
    """What is fitted on published speeds.

    Attributes:
        dispatch: What an eager operator costs the host beside V100 and A100, in seconds.
        share: Of stage 3's collectives that hides behind nothing.
        low: The least of measured by said speed in the interval; the most is its inverse.
    """

    dispatch: float
    share: float
    low: float


def lines(compared: Cases) -> list[str]:
    """The paragraph and the table of docs/speed.md, in Markdown."""
    constants = without(compared)
    rows = [(case, *judged(case, constants[case.source])) for case in compared]
    groups = {
        "all": rows,
        "all that may be looked at": [row for row in rows if not row[0].held_back],
        "all that are held back": [row for row in rows if row[0].held_back],
        "DeepSpeed": [row for row in rows if row[0].system == DEEPSPEED],
    }
    head = ("", "rows", "median error", "median absolute error", "in the interval", "as it is", "in the interval")
    told = []
    for title, those in groups.items():
        count, error, absolute, _ = figures([said for _, said, _ in those])
        _, _, now, share = figures([case for case, _, _ in those])
        inside = f"{sum(inside for _, _, inside in those)} of {count}"
        told.append((title, count, error, absolute, inside, now, share))
    every = constants.values()
    return [
        "All of it at once: of each source the two constants and the interval are those that all others give, each",
        "fitted under the other, and its rows are judged by them; those that are held back too, which no fit has seen.",
        f"The constants are then {_range([1e6 * one.dispatch for one in every], '.1f')} us and "
        f"{_range([one.share for one in every], '.2f')}, and the interval begins at "
        f"{_range([one.low for one in every], '.2f')}. This is",
        "what the model is worth on a source that it has never seen:",
        "",
        *table(head, told),
        "",
        *_most(groups["DeepSpeed"], constants),
        "",
        *_rows_that_tell(compared),
    ]


def _most(rows: Sequence[tuple[SpeedCase, SpeedCase, bool]], constants: Mapping[str, Constants]) -> list[str]:
    """Which source has most of DeepSpeed's rows, and what the others make of it."""
    ((source, count),) = Counter(case.source for case, _, _ in rows).most_common(1)
    own = figures([said for case, said, _ in rows if case.source == source])[2]
    rest = figures([said for case, said, _ in rows if case.source != source])[2]
    said = (
        f"Of DeepSpeed's rows {count} are of one source, {SOURCES[source].title}, for which the others give a share of "
        f"{constants[source].share:.2f}: their median absolute error is then {own}, that of the others {rest}."
    )
    return textwrap.wrap(said, 110)


def _rows_that_tell(compared: Cases) -> list[str]:
    """How much hangs on which rows stage 3's share is fitted by."""
    own = [case for case in compared if case.system == DEEPSPEED]
    ((source, _),) = Counter(case.source for case in own).most_common(1)
    told = []
    for least in _OTHER_ROWS:
        constants = without(compared, least)
        said = [judged(case, constants[case.source])[0] for case in own]
        moved, rows = f"{100 * least:.1f} %" if least else "at all", len(fits(compared, least)[1].rows)
        told.append((moved, str(rows), f"{constants[source].share:.2f}", figures(said)[2]))
    return [
        "How far that hangs on which rows tell of the share: those that half of it makes faster by",
        "",
        *table(("at least", "rows", f"the share without {SOURCES[source].title}", "DeepSpeed's rows then"), told),
    ]


def without(compared: Cases, least_moved: float = LEAST_MOVED) -> Mapping[str, Constants]:
    """Source -> the constants that the rows of all other sources give; `least_moved` is that of `fits`."""
    every = fits(compared, least_moved)
    seen = [case for case in compared if not case.held_back]
    return {
        source: _fitted(every, [case for case in seen if case.source != source])
        for source in dict.fromkeys(case.source for case in compared)
    }


def judged(case: SpeedCase, constants: Constants) -> tuple[SpeedCase, bool]:
    """A row as it is said with some constants, and whether what was measured lies in their interval."""
    said = under(case, constants.dispatch, constants.share)
    return said, lies_in(said, constants.low)


def _fitted(every: Sequence[Fit], rows: Cases) -> Constants:
    """The constants that rows give; each is fitted on those that depend on it, under the other, until neither moves."""
    names = {case.name for case in rows}
    host, collectives = (one._replace(rows=[case for case in one.rows if case.name in names]) for one in every)
    dispatch, share = host.value, collectives.value
    for _ in range(MOST_ROUNDS):
        before = dispatch, share
        dispatch = host._replace(error=partial(_with_dispatch, share)).fitted(host.rows)
        share = collectives._replace(error=partial(_with_share, dispatch)).fitted(collectives.rows)
        if (dispatch, share) == before:
            break
    return Constants(dispatch, share, narrowest([under(case, dispatch, share) for case in rows]))


def _with_dispatch(share: float, case: SpeedCase, dispatch: float) -> float:
    return under(case, dispatch, share).error


def _with_share(dispatch: float, case: SpeedCase, share: float) -> float:
    return under(case, dispatch, share).error


def _range(values: Sequence[float], form: str) -> str:
    least, most = min(values), max(values)
    return f"{least:{form}}" if least == most else f"{least:{form}} to {most:{form}}"
