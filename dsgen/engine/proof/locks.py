"""Locks of half-built DeepSpeed operators: which are stale, and dsgen's own lock around a build.

torch marks a build with a file `<operator>/lock` and waits for its removal without end
(torch/utils/file_baton.py), so a builder that was killed hangs every later run.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["build_lock", "clear_stale"]

OWN_LOCK = ".dsgen-build.lock"  # a flock: the kernel drops it with the process that held it
_PROC = Path("/proc")
_OLD_SECONDS = 3600.0  # without /proc nobody can be asked; the longest build seen took 4 minutes
_POLL_SECONDS = 0.2


def _abandoned(root: Path, proc: Path) -> dict[Path, bool]:
    """Locks under an extensions folder that no living process holds -> whether a compiler still works there.

    torch keeps the lock open while it builds; a compiler may outlive it and then has the folder as its own.
    """
    locks = [path.resolve() for path in sorted(root.glob("*/lock"))]
    if not locks:
        return {}
    if not proc.is_dir():
        return {lock: False for lock in locks if time.time() - lock.stat().st_mtime > _OLD_SECONDS}
    used = _paths_in_use(proc)
    return {lock: str(lock.parent) in used for lock in locks if str(lock) not in used}


def _paths_in_use(proc: Path) -> set[str]:
    """Every path that a readable process has open or has as its working folder."""
    paths: set[str] = set()
    for process in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended while we looked, or is another user's
            paths.add(str((process / "cwd").readlink()))
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    paths.add(str(descriptor.readlink()))
    return paths


def clear_stale(root: Path, patience_seconds: float = 0.0, proc: Path = _PROC) -> list[str]:
    """Remove the locks that nobody holds.

    Args:
        root: The extensions folder; each operator has a folder in it.
        patience_seconds: How long to wait for compilers that outlived their builder: they write the same files.
        proc: Where the processes of this machine are listed.

    Returns:
        The operators whose lock was removed.
    """
    deadline = time.monotonic() + patience_seconds
    removed = []
    while abandoned := _abandoned(root, proc):
        for lock in [lock for lock, busy in abandoned.items() if not busy]:
            lock.unlink(missing_ok=True)
            removed.append(lock.parent.name)
        if not any(abandoned.values()) or time.monotonic() > deadline:
            break
        time.sleep(_POLL_SECONDS)
    return removed


@contextlib.contextmanager
def build_lock(root: Path, timeout_seconds: float) -> Iterator[None]:
    """Let one dsgen at a time build in an extensions folder.

    Raises:
        TimeoutError: Another dsgen still builds after the timeout.
    """
    root.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_seconds
    descriptor = os.open(root / OWN_LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another dsgen has been building in {root} for too long") from None
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)
