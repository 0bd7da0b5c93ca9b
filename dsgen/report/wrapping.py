"""Words in lines of a terminal's width."""

from __future__ import annotations

import textwrap

__all__ = ["wrapped"]

_WIDTH = 80


def wrapped(words: str, indent: str, further: int = 0) -> list[str]:
    """Words in lines of 80 columns.

    Args:
        words: Any; none are one line with the indent alone.
        indent: What the first line begins with; the later ones have as much room before them.
        further: Columns by which the later ones are indented more.
    """
    behind = " " * (len(indent) + further)
    return textwrap.wrap(words, _WIDTH, initial_indent=indent, subsequent_indent=behind) or [indent]
