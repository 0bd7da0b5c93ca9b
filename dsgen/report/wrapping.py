"""Words in lines of a terminal's width."""

from __future__ import annotations

import textwrap

from dsgen.report.bars import FULL

__all__ = ["fit", "wrapped"]

_WIDTH = 80


def wrapped(words: str, indent: str, further: int = 0) -> list[str]:
    """Words in lines of 80 columns.

    Args:
        words: Any; none are one line with the indent alone.
        indent: What the first line begins with; the later ones have as much room before them.
        further: Columns by which the later ones are indented more.
    """
    behind = " " * (len(indent) + further)
    lines = textwrap.wrap(words, _WIDTH, initial_indent=indent, subsequent_indent=behind, break_on_hyphens=False)
    return lines or [indent]


def fit(line: str) -> str:
    """A line of words broken at 80 columns; a bar or a path is never broken."""
    if len(line) <= _WIDTH or FULL in line:
        return line
    return textwrap.fill(line, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
