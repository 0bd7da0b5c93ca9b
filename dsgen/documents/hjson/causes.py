"""Why a JSON or HJSON text cannot be read on: the most likely cause, and where it stands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dsgen.documents.hjson.tokens import Bare, BrokenTextError, shown

__all__ = ["more", "not_closed", "wrong_close"]

_CLOSE = {"{": "}", "[": "]"}
_WIDEST = 500  # characters of a line that its indentation is looked for in; keeps a file of one long line fast
_NOT_A_NUMBER = re.compile(r"-?(?:NaN|Infinity)\b")
_RUNS_ON = re.compile(r"[}\]]|\":")  # in a text without quotes: more than one value was meant

_JSON = {"True": "true", "False": "false", "None": "null"}
_PYTHON = re.compile(r"(True|False|None)\b")


def not_closed(
    text: str, opened: Sequence[tuple[str, int]], closed: Sequence[tuple[str, int, int]], bare: Sequence[Bare]
) -> BrokenTextError:
    """The text ends inside a map or list.

    Args:
        text: The whole text.
        opened: Path and offset of every { and [ that is still open, outermost first.
        closed: Path and both offsets of every pair that was closed, in the order of the closing.
        bare: The texts without quotes.
    """
    for one in reversed(bare):
        said = shown(one.value)
        if _NOT_A_NUMBER.match(one.value):
            message = f"hjson takes {said} for a text up to the end of the line, so that a bracket stays open"
            return BrokenTextError(message, one.span.start, one.span.end, "not-a-number")
        if _RUNS_ON.search(one.value):
            python = _PYTHON.match(one.value)
            meant = f"; JSON's word for {python[1]} is {_JSON[python[1]]}" if python else ""
            message = (
                f"a value without quotes runs to the end of its line: {said} is one text, and a bracket stays open"
                f"{meant}"
            )
            return BrokenTextError(message, one.span.start, one.span.end)
    for path, start, end in closed:
        if _further_out(text, start, end):
            message = (
                f"{_named(text, path, start)} has no {_CLOSE[text[start]]} of its own: going by the indentation, "
                f"the one in line {_line(text, end)} closes something further out"
            )
            return BrokenTextError(message, start, start + 1)
    if not opened:
        last = len(text.rstrip())
        return BrokenTextError("the file ends where a value must stand", last - 1, last)
    path, start = opened[-1]
    message = f"{_named(text, path, start)} is never closed; {_CLOSE[text[start]]} is missing"
    return BrokenTextError(message, start, start + 1)


def wrong_close(text: str, at: int, opened: Sequence[tuple[str, int]], wanted: str) -> BrokenTextError:
    """A closing bracket stands at an offset where a key or value (`wanted`) must; for `opened` see `not_closed`."""
    character = text[at]
    if not opened:
        return BrokenTextError(f"{character} closes nothing", at, at + 1)
    path, start = opened[-1]
    close = _CLOSE[text[start]]
    what = f"{character} stands where {wanted} must"
    if character != close:
        what = f"{character} stands where {close} must close {_named(text, path, start)}"
    return BrokenTextError(what, at, at + 1)


def more(text: str, start: int, end: int, after: int) -> BrokenTextError:
    """Something stands behind the config, which goes from `start` to `end`; it begins at `after`."""
    rest = re.split(r"[\r\n]", text[after : after + 60], maxsplit=1)[0]
    ended = f"the config that begins in line {_line(text, start)} ends in line {_line(text, end - 1)}"
    if rest.startswith("```"):
        what = f"{ended}; the Markdown fence {shown(rest)} behind it was copied along"
    elif rest[0] in "}]":
        what = f"{ended}; one {rest[0]} too many follows"
    else:
        what = f"{ended}; nothing may follow, but {shown(rest)} does"
    return BrokenTextError(what, after, after + len(rest))


def _further_out(text: str, start: int, end: int) -> bool:
    """Whether a closing bracket begins its line and stands further left than the line that its partner stands in."""
    before = _line_before(text, end)
    if before.strip() or text.find("\n", start, end) < 0:
        return False
    opening = _line_before(text, start)
    return len(before) < len(opening) - len(opening.lstrip(" \t"))


def _line_before(text: str, offset: int) -> str:
    near = max(0, offset - _WIDEST)
    return text[max(text.rfind("\n", near, offset) + 1, near) : offset]


def _named(text: str, path: str, start: int) -> str:
    return f"the {text[start]}{f' of {shown(path)}' if path else ''} in line {_line(text, start)}"


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1
