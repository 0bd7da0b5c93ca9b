"""Text into a file: whole or not at all, and refused in words.

What dsgen makes anew from the same words (a config, a report, a page) is written over what is there, but over nothing
that it was made from. Over what a person goes on writing (a scenario, a profile, the folder of a run) --force alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from dsgen.shapes.errors import mistake

__all__ = ["ensure_apart", "ensure_writable", "there", "write_atomically", "write_new_yaml"]

_READER_SECONDS = 5.0  # for a program in the background to open the pipe that we write
_PAUSE_SECONDS = 0.05


def there(path: str) -> str:
    """The text that lies at a path now; "" where no file does, or where it cannot be read."""
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace")
    return ""


def ensure_apart(path: str, read: Iterable[object], *, by: str = "-o") -> None:
    """Refuse to write over a file that was read.

    Args:
        path: The file that is to be written.
        read: What was said, paths of files among it, alone or in tuples; the rest is let be.
        by: What the path was given by, for errors.

    Raises:
        DsgenError: It is one of them, by whatever name.
    """
    said = [one for item in read for one in (item if isinstance(item, (tuple, list)) else (item,))]
    for one in said:
        if isinstance(one, str) and _same(one, path):
            raise mistake(
                f"{by} {path} is a file that is read",
                must="what is made from it needs a file of its own",
                todo="Nothing was written. Name another file.",
                code="contradiction",
            )


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
            with open(target, "w", encoding="utf-8", opener=_open_pipe) as pipe:
                pipe.write(text)
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


def write_new_yaml(path: str, text: Callable[[str], str], kind: str, *, force: bool = False) -> None:
    """Write a YAML file of a person's that is not there yet, as a whole or not at all.

    Args:
        path: The file, which ends in .yaml or .yml; or a pipe.
        text: What it will hold, by the name of the file; of a pipe by "my-box".
        kind: What it is, for errors: "a profile".
        force: Write over a file that is there.

    Raises:
        DsgenError: As `write_atomically`; or it has another ending, or a file is there.
    """
    here = Path(path).expanduser()
    special = here.exists() and not here.is_file()
    if here.suffix not in (".yaml", ".yml") and not special:
        raise mistake(
            f"-o is {path!r}", must=f"{kind}'s file ends in .yaml", todo=f"Such as {here.with_suffix('.yaml')}."
        )
    if here.is_file() and not force:
        raise mistake("it is there already", where=path, todo="To lose what it says: --force.", code="unwritable")
    write_atomically(path, text("my-box" if special else here.stem))


def _same(one: str, other: str) -> bool:
    """Whether two paths lead to one file that is there; what is no path leads nowhere."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        here, there_too = Path(one).expanduser(), Path(other).expanduser()
        return here.is_file() and there_too.is_file() and here.samefile(there_too)
    return False


def _open_pipe(path: str, flags: int) -> int:
    """Open what is no file; a named pipe waits a while for its reader, which may be started beside us.

    Raises:
        OSError: Nobody reads the pipe.
    """
    over = time.monotonic() + _READER_SECONDS
    while (descriptor := _opened(path, flags)) is None:
        if time.monotonic() > over:
            raise OSError(errno.ENXIO, "it is a pipe that nobody reads")
        time.sleep(_PAUSE_SECONDS)
    os.set_blocking(descriptor, True)
    return descriptor


def _opened(path: str, flags: int) -> int | None:
    """The descriptor of a pipe; None while nobody reads it."""
    try:
        return os.open(path, (flags & ~os.O_CREAT) | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


def _target(path: str, by: str) -> Path:
    """The file that is written: behind a link, what it links to."""
    if not path:
        todo = "Without -o it goes to stdout." if by == "-o" else None
        raise mistake(f"{by} names no file", must="it must name one", todo=todo, code="missing")
    target = Path(path).expanduser()
    if target.is_symlink():
        behind = target.resolve()  # of /dev/stdout or /dev/fd/63 it may be a name that no file has: pipe:[4026]
        target = behind if behind.exists() or not target.exists() else target
    if target.is_symlink() and not target.exists():  # links in a circle; older Pythons say so themselves
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if target.is_dir():
        raise mistake("it is a folder", must=f"{by} names a file", where=path,
                      todo="Nothing was written. Name a file in it.", code="unwritable")  # fmt: skip
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
