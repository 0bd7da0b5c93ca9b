"""Fixes put into files, or shown as a diff."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from dsgen.cli.lint_options import complain
from dsgen.cli.terminal import emit
from dsgen.shapes.errors import DsgenError

if TYPE_CHECKING:
    from dsgen.linting.files import Linted
    from dsgen.linting.fixes import Tally
    from dsgen.shapes.findings import Finding

__all__ = ["mend"]


def mend(
    linted: Iterable[Linted],
    *,
    unsafe: bool,
    write: bool,
    narrow: Callable[[Linted], Linted] | None = None,
    only: Callable[[Finding], bool] | None = None,
) -> tuple[list[Linted], Tally, bool]:
    """Apply the fixes of what was found; write the files, or print the diff of each.

    The standard input is printed as it is after its fixes. A file that cannot be written stays as it was, which is said
    on stderr, and the others go on.

    Args:
        linted: Every file.
        unsafe: Whether fixes that change what is trained are applied too.
        write: Whether to write the files; else the diffs go to stdout.
        narrow: Which findings of a file count; all without it.
        only: Which of them to mend; those that are shown without it.

    Returns:
        The files with the findings that remain, how many were mended, and whether a file could not be written.
    """
    from dsgen.linting.fixes import Tally
    from dsgen.linting.mending import mended

    left: list[Linted] = []
    fixed, stuck = Tally(), False
    for file in linted:
        made = mended(file, unsafe=unsafe, narrow=narrow, only=only)
        after, count = made.after, made.tally
        try:
            if not write:
                emit(made.diff(), "patch")
            elif file.piped:
                click.echo(made.text, nl=False)
            elif made.applied:
                made.write()
        except DsgenError as error:
            complain(error)
            after, count, stuck = file, Tally(), True
        left.append(after)
        fixed += count
    return left, fixed, stuck
