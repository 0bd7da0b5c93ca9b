"""Markdown as every generated page writes it: tables, code and links, with a user's text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["cell", "code", "fence", "md_table"]


def cell(words: object) -> str:
    """Text for one cell: what would end the cell or start HTML is escaped, and it stays on one line."""
    return " ".join(str(words).split()).replace("|", "\\|").replace("<", "&lt;")


def code(words: object) -> str:
    """Text as code inside a cell; GitHub ends a cell at a bare bar even there."""
    return f"`{str(words).replace('|', chr(92) + '|')}`"


def fence(text: str, language: str = "text") -> str:
    """A fenced block; the text ends with one newline whatever it ended with."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def md_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already, with a final newline."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
