"""What a report is printed on: a terminal, with its width and colours, or a pipe or file, which gets the text alone."""

from __future__ import annotations

import os
import sys
from typing import TextIO

import click

__all__ = ["emit", "is_coloured", "width"]

NO_TERMINAL = 80  # columns, as shutil says of what is none


def width() -> int:
    """Columns of the terminal; 80 where there is none."""
    if not os.environ.get("COLUMNS") and not (sys.__stdout__ and sys.__stdout__.isatty()):
        return NO_TERMINAL
    import shutil  # a dozen modules, which a pipe does not need

    return shutil.get_terminal_size().columns


def is_coloured(stream: TextIO | None) -> bool:
    """Whether a stream takes colours: not a pipe, with NO_COLOR, or on a dumb terminal."""
    there = stream is not None and stream.isatty()
    return there and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def emit(text: str, report: str, *, nl: bool = False, err: bool = False) -> None:
    """Print a report, in colours where they are taken.

    Args:
        text: The report.
        report: Its kind, as `report.colours` knows it.
        nl: Whether a line break is to follow.
        err: Whether it goes to stderr.
    """
    if is_coloured(sys.stderr if err else sys.stdout):
        from dsgen.report.colours import painted  # it loads rich

        text = painted(text, report)
    click.echo(text, nl=nl, err=err)
