"""Several files into one folder: all of them or none, and nothing of a person's is overwritten unasked."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from dsgen.shapes.errors import mistake

__all__ = ["ensure_free", "write_folder"]

_MOST_NAMED = 4  # files in the way that an error names


def ensure_free(folder: str, names: Mapping[str, str], *, force: bool = False, by: str = "-o") -> None:
    """Say what is in the way of a folder, before anything is written.

    Raises:
        DsgenError: It is a file, or holds anything and `force` was not said.
    """
    path = Path(folder)
    with _words(folder):
        if path.exists() and not path.is_dir():
            raise mistake("it is a file", must=f"{by} names a folder", where=folder, code="unwritable")
        there = sorted(one.name for one in path.iterdir()) if path.is_dir() else []
    if not there or force:
        for name in there:
            if name in names and (path / name).is_dir():
                raise mistake("it is a folder", must="a file goes there", where=str(path / name), code="unwritable")
        return
    ours = [name for name in there if name in names]
    shown = ", ".join((ours or there)[:_MOST_NAMED]) + (", ..." if len(ours or there) > _MOST_NAMED else "")
    raise mistake(
        f"the folder holds {shown}",
        must="a run has a folder of its own",
        where=folder,
        todo=f"Nothing was written. --force writes over {shown}."
        if ours
        else "Nothing was written. Name another one; --force writes beside what is there.",
        code="unwritable",
    )


def write_folder(folder: str, files: Mapping[str, str], *, force: bool = False, by: str = "-o") -> None:
    """Write files into a folder: a new one appears whole, into one that is there they go when all were written aside.

    Args:
        folder: The folder; the folders above it are made too.
        files: Name -> text, in UTF-8.
        force: Whether files of these names may be replaced; others stay.
        by: What the folder was given by, for errors.

    Raises:
        DsgenError: As `ensure_free`, or the disk refuses; nothing is left behind.
    """
    ensure_free(folder, files, force=force, by=by)
    path = Path(folder)
    with _words(folder):
        made = _make_parents(path)
        try:
            aside = Path(tempfile.mkdtemp(prefix=f".{path.name[:40]}.", dir=path.parent))
            try:
                for name, text in files.items():
                    with (aside / name).open("w", encoding="utf-8", newline="\n") as file:
                        file.write(text)
                        file.flush()
                        os.fsync(file.fileno())
                _move(aside, path, files)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
        except BaseException:
            for one in reversed(made):
                with contextlib.suppress(OSError):
                    one.rmdir()
            raise


def _make_parents(path: Path) -> list[Path]:
    """The folders above it that were made, the highest first."""
    missing = [one for one in (*reversed(path.parents),) if not one.exists()]
    for one in missing:
        one.mkdir()
    return missing


def _move(aside: Path, path: Path, files: Mapping[str, str]) -> None:
    mask = os.umask(0)
    os.umask(mask)
    if path.exists():
        for name in files:
            (aside / name).replace(path / name)
    else:
        aside.chmod(0o777 & ~mask)  # mkdtemp's folder is its owner's alone
        aside.rename(path)


@contextlib.contextmanager
def _words(folder: str) -> Iterator[None]:
    """Say what the system says about a folder in words."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise mistake(
            f"it cannot be written ({getattr(error, 'strerror', None) or error})",
            where=folder,
            todo="Nothing was written. Name a folder below one that is yours.",
            code="unwritable",
        ) from None
