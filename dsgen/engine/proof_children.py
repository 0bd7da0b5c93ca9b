"""Processes that the proof's server starts: begun, awaited and ended as groups, so that no compiler outlives them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["Child", "die_with_parent", "fork", "send_output_to", "spawn", "wait"]

_POLL_SECONDS = 0.02
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Child:
    """A process of our own; its id is its group's id too."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.exit_code: int | None = None

    def ended(self) -> bool:
        """Whether it has ended; then its exit code is known."""
        if self.exit_code is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self.exit_code = os.waitstatus_to_exitcode(status)
        return self.exit_code is not None

    def kill(self) -> int:
        """End it and everything in its group; returns its exit code (negative: the signal)."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):  # it may not have made its group yet
                os.kill(self.pid, signal.SIGKILL)
            self.exit_code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.exit_code


def fork(work: Callable[[], bool], log: Path) -> Child:
    """Run a function in a forked copy of this process; exit code 0 when it returns True."""
    pid = os.fork()
    if pid:
        return Child(pid)
    status = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setpgid(0, 0)
        die_with_parent()
        send_output_to(log)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        status = 0 if work() else 1
    finally:
        os._exit(status)  # the objects are the parent's: no clean-up in a copy of it


def spawn(command: Sequence[str], log: Path) -> Child:
    """Run a command as a fresh process."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    process.returncode = 0  # `Child` awaits it by its id; without this the destructor would complain
    return Child(process.pid)


def die_with_parent() -> None:
    """On Linux, be killed when the parent is: a rank that waits for a dead one must not live on."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def send_output_to(log: Path) -> None:
    """Send everything that is printed, by Python or by C, to a file."""
    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def wait(children: Sequence[Child], deadline: float, grace_seconds: float, alive: Callable[[], bool]) -> bool:
    """Wait until all have ended.

    Args:
        children: Whom to wait for.
        deadline: By `time.monotonic`.
        grace_seconds: How long the others may go on once one has failed.
        alive: Asked while waiting; False ends this process.

    Returns:
        False if the deadline passed first.

    Raises:
        SystemExit: `alive` said no.
    """
    limit = deadline
    waiting = list(children)
    while waiting:
        if not alive():
            raise SystemExit(1)
        now = time.monotonic()
        if limit == deadline and any(child.exit_code for child in children):
            limit = min(deadline, now + grace_seconds)
        if now > limit:
            return limit < deadline
        time.sleep(_POLL_SECONDS)
        waiting = [child for child in waiting if not child.ended()]
    return True
