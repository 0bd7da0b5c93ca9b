"""Words as a shell reads them back: in a script, in a #SBATCH line, and what cannot be quoted anywhere."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterable

from dsgen.shapes.errors import mistake

__all__ = ["SAFE", "array", "comment", "plain_path", "quoted", "refuse_nul"]

_WIDTH = 100  # columns of a comment
SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")  # what no shell and no launcher reads as anything else


def quoted(word: str) -> str:
    """One word as bash reads it back, letter for letter.

    Args:
        word: Any text without NUL; line breaks, quotes, `$` and blanks stay what they are.
    """
    return shlex.quote(word)


def array(name: str, words: Iterable[str]) -> str:
    """A bash array of words that are quoted already, one a line."""
    return "\n".join([f"{name}=(", *(f"  {word}" for word in words), ")"])


def comment(text: str) -> str:
    """A text as comment lines of at most 100 columns."""
    line = " ".join(text.split())
    return textwrap.fill(line, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def refuse_nul(words: Iterable[str]) -> None:
    """Refuse what no program can be given as an argument.

    Raises:
        DsgenError: A word holds a NUL.
    """
    for word in words:
        if "\0" in word:
            raise mistake(
                f"the argument {word!r} holds a NUL", must="no program can be given one", todo="Leave it out."
            )


def plain_path(path: str, why: str) -> None:
    """Refuse a path that a launcher hands on without quoting.

    Args:
        path: The folder of a run.
        why: Who reads it so.

    Raises:
        DsgenError: It holds a blank, a quote or another letter with a meaning.
    """
    if SAFE.fullmatch(path) is None:
        raise mistake(
            f"the folder {path} holds letters that a shell reads as something else",
            must=why,
            where="-o",
            todo="Name a folder whose whole path has letters, digits and . _ - / only.",
        )
