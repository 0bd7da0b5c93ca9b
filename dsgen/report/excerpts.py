"""One line of a file as a terminal can show it, with carets below what is pointed at."""

from __future__ import annotations

import unicodedata

import attrs

__all__ = ["Excerpt", "excerpt", "printable"]

_TAB = 4  # columns; a terminal's own 8 would push a deeply nested key off the line
_CUT = "..."
_LEFT_SHARE = 3  # of the room, one part in three stays for what stands before the carets


@attrs.frozen
class Excerpt:
    """A line without tabs and control characters, the column where the carets begin, and how many there are."""

    line: str
    caret: int
    carets: int


def excerpt(line: str, start: int, end: int, room: int) -> Excerpt:
    """Cut a line around what is pointed at.

    Args:
        line: A line of a file, without its end.
        start, end: First character pointed at and the one after the last, from 0.
        room: Columns of the terminal for the line; at least 20 are used.

    Returns:
        A line of at most that many columns; the carets stand below the same characters, wide ones included.
    """
    room = max(room, 20)
    start = min(start, len(line))
    end = max(min(end, len(line)), start)
    before, far = _cells(line[max(0, start - room) : start], 0), start > room
    column = sum(width for _, width in before)
    inside = _cells(line[start : min(end, start + room)], column)
    after = _cells(line[end : end + room], column + _width(inside))
    left, right = before, after
    if not far and column + _width(inside) + _width(after) <= room and len(line) - end <= room:
        return Excerpt(_text(left + inside + right), column, max(1, _width(inside)))
    if far or column > room - min(_width(inside) + len(_CUT), room * 2 // 3):
        left = [(_CUT, len(_CUT)), *_last(left, room // _LEFT_SHARE - len(_CUT))]
    caret = _width(left)
    shown = _first(inside, room - caret - len(_CUT))
    rest = _first(right, room - caret - _width(shown)) if len(shown) == len(inside) else []
    whole = len(shown) == len(inside) and len(rest) == len(right) and end + room >= len(line)
    if not whole:
        rest = [*_first(rest, room - caret - _width(shown) - len(_CUT)), (_CUT, len(_CUT))]
    return Excerpt(_text(left + shown + rest), caret, max(1, _width(shown)))


def printable(text: str) -> str:
    """Text on one line, with control characters spelled out: they could move the cursor or forge a line."""
    return "".join(letter if letter.isprintable() else _spelled(letter) for letter in text)


def _spelled(letter: str) -> str:
    return " " if letter in "\n\r\t" else ascii(letter)[1:-1]


_Cells = list[tuple[str, int]]


def _cells(text: str, column: int) -> _Cells:
    """Each character as it is shown, and the columns it takes; `column` is where the text begins, for its tabs."""
    cells: _Cells = []
    for letter in text:
        if letter == "\t":
            width = _TAB - column % _TAB
            shown = " " * width
        elif letter.isprintable():
            shown = letter
            width = _columns(letter)
        else:
            shown = ascii(letter)[1:-1]
            width = len(shown)
        cells.append((shown, width))
        column += width
    return cells


def _columns(letter: str) -> int:
    """Two for a wide letter of East Asia, none for a mark that joins the letter before it."""
    if letter.isascii():
        return 1
    if unicodedata.category(letter) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _width(cells: _Cells) -> int:
    return sum(width for _, width in cells)


def _text(cells: _Cells) -> str:
    return "".join(shown for shown, _ in cells)


def _first(cells: _Cells, room: int) -> _Cells:
    """As many of the first as fit."""
    used = 0
    for index, (_, width) in enumerate(cells):
        used += width
        if used > room:
            return cells[:index]
    return cells


def _last(cells: _Cells, room: int) -> _Cells:
    """As many of the last as fit."""
    return _first(cells[::-1], room)[::-1]
