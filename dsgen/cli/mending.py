"""Fixes put into files, or shown as a diff."""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from dsgen.cli.lint_options import complain
from dsgen.documents.writing import write_atomically
from dsgen.shapes.errors import DsgenError, mistake

if TYPE_CHECKING:
    from dsgen.documents.document import Document
    from dsgen.linting.files import Linted
    from dsgen.shapes.findings import Finding

__all__ = ["mend"]


def mend(
    linted: Iterable[Linted],
    *,
    unsafe: bool,
    write: bool,
    narrow: Callable[[Linted], Linted] | None = None,
    only: Callable[[Finding], bool] | None = None,
) -> tuple[list[Linted], int, bool]:
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
    left: list[Linted] = []
    mended, stuck = 0, False
    for file in linted:
        after, count = _mended(file, unsafe, narrow or _same, only or _shown(file))
        name, text = file.document.name, after.document.text
        try:
            if not write:
                _print_diff(file, text)
            elif file.piped:
                click.echo(text, nl=False)
            elif count:
                _write(name, text)
        except DsgenError as error:
            complain(error)
            after, count, stuck = file, 0, True
        left.append(after)
        mended += count
    return left, mended, stuck


def _shown(file: Linted) -> Callable[[Finding], bool]:
    return lambda finding: finding.severity >= file.lowest


def _same(linted: Linted) -> Linted:
    return linted


def _mended(
    file: Linted, unsafe: bool, narrow: Callable[[Linted], Linted], only: Callable[[Finding], bool]
) -> tuple[Linted, int]:
    from dsgen.linting import fixes

    def lint(document: Document) -> tuple[Finding, ...]:
        again = narrow(file.again(document))
        return (*again.findings, *again.hidden)

    found = fixes.fix(file.document, unsafe=unsafe, lint=lint, read=file.source.read, only=only)
    if not found.applied:
        return file, 0
    return narrow(file.again(file.source.read(found.text, file.document.name))), len(found.applied)


def _print_diff(file: Linted, text: str) -> None:
    from dsgen.linting import fixes

    name, mark = file.document.name, ""
    if text != file.document.text and not file.piped:
        with contextlib.suppress(OSError), Path(name).open("rb") as there:
            mark = _mark(there)
    click.echo(fixes.diff(f"{mark}{file.document.text}", f"{mark}{text}", name), nl=False)


def _mark(file: IO[bytes]) -> str:
    """The byte order mark at the start of a file, which no document keeps; "" where there is none."""
    return "\ufeff" if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else ""


def _write(path: str, text: str) -> None:
    """Replace the text of a file that is there; its byte order mark stays, and its line ends are in the text.

    Raises:
        DsgenError: It cannot be written, is write-protected, or is gone.
    """
    try:
        with Path(path).open("r+b") as file:  # a protected file could be replaced; it is not
            mark = _mark(file)
    except OSError as error:
        raise mistake(
            f"its fixes cannot be written ({error.strerror or error})", where=path, code="unwritable"
        ) from None
    try:
        write_atomically(path, f"{mark}{text}")
    except DsgenError as error:  # what to do speaks of -o
        raise mistake(error.what, must=error.must, where=error.where, code=error.code) from None
