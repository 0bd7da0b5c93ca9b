"""Text into a file: whole or not at all, and refused in words."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from dsgen.shapes.errors import mistake

__all__ = ["ensure_writable", "write_atomically"]


def ensure_writable(path: str, *, by: str = "-o") -> None:
    """Say now, before long work, what `write_atomically` would say after it.

    Raises:
        DsgenError: As `write_atomically` does; nothing is left behind.
    """
    import tempfile

    with _told(path):
        target = _target(path, by)
        if target.exists() and not target.is_file():
            if not os.access(target, os.W_OK):
                raise OSError(errno.EACCES, os.strerror(errno.EACCES))
            return
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:40]}.", dir=target.parent)
        os.close(descriptor)
        Path(temporary).unlink()


def write_atomically(path: str, text: str, *, by: str = "-o") -> None:
    """Write a file as a whole or not at all.

    Args:
        path: The file; a link is followed, `~` is somebody's home.
        text: What it will hold, in UTF-8; line ends are written as they are.
        by: What the path was given by, for errors.

    Raises:
        DsgenError: The folder is missing or not writable, or the path is a folder; nothing is left behind.
    """
    import tempfile  # loads a dozen modules, and most runs write to stdout

    with _told(path):
        target = _target(path, by)
        if target.exists() and not target.is_file():  # a pipe or /dev/stdout cannot be replaced, only written to
            target.write_text(text, encoding="utf-8")
            return
        mask = os.umask(0)
        os.umask(mask)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~mask
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:40]}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(mode)
            Path(temporary).replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise


def _target(path: str, by: str) -> Path:
    """The file that is written: behind a link, what it links to."""
    if not path:
        todo = "Without -o it goes to stdout." if by == "-o" else None
        raise mistake(f"{by} names no file", must="it must name one", todo=todo, code="missing")
    target = Path(path).expanduser()
    target = target.resolve() if target.is_symlink() else target
    if target.is_symlink():  # older Pythons say so themselves
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if target.is_dir():
        raise mistake("it is a folder", must=f"{by} names a file", where=path, code="unwritable")
    return target


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    """Say what the system says about a path in words."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a circle, or no home for ~somebody
        raise mistake(
            f"it cannot be written ({getattr(error, 'strerror', None) or error})",
            where=path,
            todo="Nothing was written. Name a file in a folder that exists and is yours.",
            code="unwritable",
        ) from None
