"""A linted file after its fixes: the new text, what was mended, what is left, and the file rewritten."""

from __future__ import annotations

import codecs
import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import attrs

from dsgen.documents.document import Document
from dsgen.documents.writing import write_atomically
from dsgen.linting import fixes
from dsgen.linting.files import UNWRITTEN, Linted
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.findings import Finding

__all__ = ["Mended", "mended"]


@attrs.frozen(kw_only=True, eq=False)
class Mended:
    """What fixing made of one file or config; nothing is written yet.

    Attributes:
        before: The file as it was linted.
        after: The same with the fixes in its text, linted again.
        applied: The findings that were mended, in the order in which they were.
        tally: How many of them were there at first, and how many came up by a fix.
    """

    before: Linted = attrs.field(repr=False)
    after: Linted
    applied: tuple[Finding, ...]
    tally: fixes.Tally

    @property
    def text(self) -> str:
        """The new text; of a dict as JSON."""
        return self.after.document.text

    @property
    def config(self) -> Mapping[str, Any]:
        """The new config; empty where the file holds none. Of a dict, with its numbers as they were given."""
        document = self.after.document
        config = json.loads(document.text) if document.name == UNWRITTEN else document.config
        return config if isinstance(config, Mapping) else {}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings that are left."""
        return self.after.findings

    @property
    def _unmarked(self) -> bool:
        """Whether its byte order mark was a finding, and is gone with any fix: no document's text has it."""
        return bool(self.applied) and any(finding.rule == fixes.MARK for finding in self.before.findings)

    def diff(self) -> str:
        """The change as a unified diff; "" where there is none."""
        name, mark = self.before.document.name, ""
        if (self._unmarked or self.text != self.before.document.text) and not self.before.piped:
            with contextlib.suppress(OSError), Path(name).open("rb") as there:
                mark = _mark(there)
        left = "" if self._unmarked else mark
        return fixes.diff(f"{mark}{self.before.document.text}", f"{left}{self.text}", name)

    def write(self) -> None:
        """Replace the text of the file, whole or not at all; a byte order mark stays where its program skips it.

        Raises:
            DsgenError: It cannot be written, is write-protected, is gone, or no file holds the config.
        """
        path = self.before.document.name
        if path == UNWRITTEN:
            raise mistake("no file holds this config", todo="Take .config, the mended dict.", code="unwritable")
        try:
            with Path(path).open("r+b") as file:  # a protected file could be replaced; it is not
                mark = "" if self._unmarked else _mark(file)
        except OSError as error:
            what = f"its fixes cannot be written ({error.strerror or error})"
            raise mistake(what, where=path, code="unwritable") from None
        try:
            write_atomically(path, f"{mark}{self.text}")
        except DsgenError as error:  # what to do speaks of -o
            raise mistake(error.what, must=error.must, where=error.where, code=error.code) from None


def mended(
    file: Linted,
    *,
    unsafe: bool = False,
    narrow: Callable[[Linted], Linted] | None = None,
    only: Callable[[Finding], bool] | None = None,
) -> Mended:
    """A file with its fixes.

    Args:
        file: The file with its findings.
        unsafe: Whether fixes that change what is trained are applied too.
        narrow: Which findings of a file count; all without it.
        only: Which of them to mend; those that are shown without it.
    """
    narrowed = narrow or _same

    def lint(document: Document) -> tuple[Finding, ...]:
        again = narrowed(file.again(document))
        return (*again.findings, *again.hidden)

    wanted = only or (lambda finding: finding.severity >= file.lowest)
    fixed = fixes.fix(file.document, unsafe=unsafe, lint=lint, read=file.source.read, only=wanted)
    if not fixed.applied:
        return Mended(before=file, after=file, applied=(), tally=fixed.tally)
    after = narrowed(file.again(file.source.read(fixed.text, file.document.name)))
    return Mended(before=file, after=after, applied=fixed.applied, tally=fixed.tally)


def _same(linted: Linted) -> Linted:
    return linted


def _mark(file: IO[bytes]) -> str:
    """The byte order mark at the start of a file, which no document keeps; "" where there is none."""
    return "\ufeff" if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else ""
