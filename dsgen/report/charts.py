"""Charts as SVG: points with their intervals, over a measure or over named values; no script, light and dark."""

import itertools
import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from dsgen.report.bars import rounded
from dsgen.report.timeline import STYLE

__all__ = ["CHART_STYLE", "Mark", "alone", "curve", "scatter"]

CHOSEN, FITS, MAY_FIT, TOO_LARGE = "chosen", "fits", "may", "not"  # what a mark is drawn as

CHART_STYLE = (
    STYLE
    + """.dsgen-memory .chosen{fill:#2a9d8f;stroke:#2a9d8f}.dsgen-memory .fits{fill:#4e79a7;stroke:#4e79a7}
.dsgen-memory .may{fill:none;stroke:#f28e2b;stroke-width:1.5}.dsgen-memory .not{fill:none;stroke:var(--soft)}
.dsgen-memory .whisker{fill:none;stroke-width:1.5;stroke-opacity:.55}
.dsgen-memory .way{fill:none;stroke:#4e79a7;stroke-width:1.5}
"""
)
_WIDTH, _LEFT, _RIGHT, _TOP, _BELOW = 960, 76, 28, 40, 64  # px: the drawing, and the room around the plot
_HEIGHT = 340  # px of the plot
_LETTER = 6.6  # px of a letter at 12 px, about
_LINE = 15  # px between two labels that do not touch
_RADIUS = 5
_BEYOND = 1.6  # times the limit beyond which a mark stands at the edge


class Mark(NamedTuple):
    """One point.

    Attributes:
        x: Where, in the unit of the axis; of a curve unused.
        y, low, high: The value and its interval.
        name: What it is called.
        told: All that is said of it where a pointer is on it.
        kind: CHOSEN, FITS, MAY_FIT or TOO_LARGE.
        labelled: Whether its name stands beside it.
    """

    x: float
    y: float
    low: float
    high: float
    name: str
    told: str
    kind: str = FITS
    labelled: bool = False


def alone(drawing: str) -> str:
    """A drawing as a file of its own, with a final newline."""
    head, tag, rest = drawing.partition(">")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}{tag}<style>{CHART_STYLE}</style>{rest}\n'


def scatter(title: str, x_title: str, y_title: str, marks: Sequence[Mark], limit: float, limit_title: str) -> str:
    """Values over a measure that has a limit.

    Args:
        title: What is shown.
        x_title, y_title: Of the axes, with their units.
        marks: The points.
        limit: Where the measure ends.
        limit_title: What ends there.
    """
    most_x = min(max(mark.x for mark in marks), _BEYOND * limit)
    across = _Scale(max(most_x, limit) * 1.05, _LEFT, _WIDTH - _RIGHT)
    up = _Scale(max(mark.high for mark in marks) * 1.08, _TOP + _HEIGHT, _TOP)
    body = [*_grid(title, x_title, y_title, up), *_across(across)]
    x = across.at(limit)
    body += [
        f'<path class="limit" d="M{x:.1f},{_TOP}V{_TOP + _HEIGHT}"/>',
        f'<text class="soft" x="{x - 6:.1f}" y="{_TOP + 12}" text-anchor="end">{escape(limit_title)}</text>',
    ]
    # The chosen one is on top, and the first to be named.
    drawn = sorted(marks, key=lambda mark: (mark.kind == CHOSEN, mark.labelled, mark.kind == FITS, mark.y))
    taken: list[tuple[float, float, float]] = []
    labels: list[str] = []
    for mark in reversed(drawn):
        x, y = min(across.at(mark.x), _WIDTH - _RIGHT), up.at(mark.y)
        if mark.labelled:
            labels += _label(mark, x, y, taken)
    body += [_dot(mark, min(across.at(mark.x), _WIDTH - _RIGHT), up) for mark in drawn]
    return _svg(title, [*body, *labels])


def curve(title: str, x_title: str, y_title: str, marks: Sequence[Mark], names: Sequence[str]) -> str:
    """Values over named ones, evenly spaced; a dashed line where what is chosen changes.

    Args:
        title: What is shown.
        x_title, y_title: Of the axes, with their units.
        marks: The points, one for each name; one whose value is 0 has none.
        names: Of the values.
    """
    up = _Scale(max(mark.high for mark in marks) * 1.08, _TOP + _HEIGHT, _TOP)
    step = (_WIDTH - _LEFT - _RIGHT) / len(names)
    places = [_LEFT + step * (place + 0.5) for place in range(len(names))]
    body = list(_grid(title, x_title, y_title, up))
    for x, name in zip(places, names, strict=True):
        body.append(
            f'<text x="{x:.1f}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">{escape(_cut(name, step))}</text>'
        )
    there = [(x, mark) for x, mark in zip(places, marks, strict=True) if mark.y]
    for (x, mark), (other_x, other) in itertools.pairwise(there):
        if mark.name != other.name:
            middle = (x + other_x) / 2
            body.append(f'<path class="step" d="M{middle:.1f},{_TOP}V{_TOP + _HEIGHT}"/>')
    way = " ".join(f"{x:.1f},{up.at(mark.y):.1f}" for x, mark in there)
    body.append(f'<polyline class="way" points="{way}"/>')
    for x, mark in there:
        body.append(_dot(mark, x, up))
        y = up.at(mark.high) - 8
        body.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{rounded(mark.y)}</text>')
    return _svg(title, body)


class _Scale(NamedTuple):
    """From 0 at `begin` to `most` at `end`, both in px."""

    most: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        return self.begin + (self.end - self.begin) * value / self.most


def _grid(title: str, x_title: str, y_title: str, up: _Scale) -> Iterator[str]:
    yield f'<text class="label" x="{_LEFT}" y="20">{escape(title)}</text>'
    for value in _ticks(up.most, 6):
        y = up.at(value)
        yield f'<path class="grid" d="M{_LEFT},{y:.1f}H{_WIDTH - _RIGHT}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{rounded(value) if value else 0}</text>'
    middle = _TOP + _HEIGHT / 2
    yield (
        f'<text class="soft" transform="translate(16,{middle:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_title)}</text>"
    )
    yield f'<text class="soft" x="{_WIDTH / 2}" y="{_TOP + _HEIGHT + 44}" text-anchor="middle">{escape(x_title)}</text>'


def _ticks(most: float, count: int) -> Iterator[float]:
    """At most so many round numbers, from 0 on."""
    step = 10.0 ** math.floor(math.log10(most / count))
    step *= next(factor for factor in (1, 2, 5, 10) if most / (step * factor) <= count)
    for place in range(int(most / step) + 1):
        yield place * step


def _across(axis: _Scale) -> Iterator[str]:
    for value in _ticks(axis.most, 10):
        x = axis.at(value)
        yield f'<path class="grid" d="M{x:.1f},{_TOP + _HEIGHT}v5"/>'
        yield f'<text x="{x:.1f}" y="{_TOP + _HEIGHT + 20}" text-anchor="middle">{value:g}</text>'


def _dot(mark: Mark, x: float, up: _Scale) -> str:
    """A point with its interval, and what a pointer shows."""
    return (
        f'<g><title>{escape(mark.told)}</title><path class="whisker {mark.kind}" '
        f'd="M{x:.1f},{up.at(mark.low):.1f}V{up.at(mark.high):.1f}"/>'
        f'<circle class="{mark.kind}" cx="{x:.1f}" cy="{up.at(mark.y):.1f}" r="{_RADIUS}"/></g>'
    )


def _label(mark: Mark, x: float, y: float, taken: list[tuple[float, float, float]]) -> Iterator[str]:
    """The name beside a point, where none is yet: to its right, else to its left; left out where both are taken."""
    width = _LETTER * len(mark.name)
    for begin, anchor, at in ((x + 9, "start", x + 9), (x - 9 - width, "end", x - 9)):
        inside = begin >= _LEFT and begin + width <= _WIDTH
        near = [(start, end) for row, start, end in taken if abs(y - row) < _LINE]
        if inside and not any(begin < end and start < begin + width for start, end in near):
            taken.append((y, begin, begin + width))
            weight = ' class="label"' if mark.kind == CHOSEN else ""
            yield f'<text{weight} x="{at:.1f}" y="{y + 4:.1f}" text-anchor="{anchor}">{escape(mark.name)}</text>'
            return


def _cut(name: str, room: float) -> str:
    most = max(4, int(room / _LETTER))
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _svg(title: str, body: Sequence[str]) -> str:
    height = _TOP + _HEIGHT + _BELOW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="dsgen-memory" role="img" viewBox="0 0 {_WIDTH} {height}" '
        f'width="100%" style="max-width:{_WIDTH}px"><title>{escape(title)}</title>'
        f'<rect class="ground" width="{_WIDTH}" height="{height}"/>{"".join(body)}</svg>'
    )
