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
from typing import NoReturn

__all__ = ["GroupLeader", "die_with_parent", "end", "fork", "send_output_to", "spawn", "wait"]

_POLL_SECONDS = 0.02
_TERM_SECONDS = 1.0  # from the request to end to the order
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class GroupLeader:
    """A process of our own; its id is its group's id too."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.exit_code: int | None = None

    def ended(self) -> bool:
        """Whether it has ended; then its exit code is known."""
        if self.exit_code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.exit_code = os.waitstatus_to_exitcode(status)
        return self.exit_code is not None

    def signal(self, number: int) -> None:
        """Send a signal to it and its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):  # it may not have made its group yet
                os.kill(self.pid, number)


def end(children: Sequence[GroupLeader]) -> list[int]:
    """End children and all that they started; returns their exit codes (negative: the signal)."""
    for child in children:
        child.signal(signal.SIGTERM)  # ninja ends its compilers, which have groups of their own
    limit = time.monotonic() + _TERM_SECONDS
    while time.monotonic() < limit and not all(child.ended() for child in children):
        time.sleep(_POLL_SECONDS)
    codes = []
    for child in children:
        child.signal(signal.SIGKILL)
        if child.exit_code is None:
            child.exit_code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        codes.append(child.exit_code)
    _sweep({os.getpid(), *(child.pid for child in children)})
    return codes


def _sweep(sessions: set[int], proc: Path = Path("/proc")) -> None:
    """Kill what is left of our sessions, whatever group or parent it has; only where /proc tells."""
    for process in proc.glob("[0-9]*"):  # no further: a glob of `stat` fails where a process ends as it is looked at
        with contextlib.suppress(OSError, ValueError):
            # After the name in brackets: state, parent, group, session (man 5 proc).
            session = int((process / "stat").read_text().rpartition(")")[2].split()[3])
            pid = int(process.name)
            if session in sessions and pid != os.getpid():
                os.kill(pid, signal.SIGKILL)


def fork(work: Callable[[], bool], log: Path) -> GroupLeader:
    """Run a function in a forked copy of this process; exit code 0 when it returns True."""
    pid = os.fork()
    if not pid:
        _be_child(work, log)
    return GroupLeader(pid)


def _be_child(work: Callable[[], bool], log: Path) -> NoReturn:
    """The life of a fork: its own group and output, the work, and no return to the parent's code."""
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


def spawn(command: Sequence[str], log: Path) -> GroupLeader:
    """Run a command as a fresh process."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    process.returncode = 0  # `GroupLeader` awaits it by its id; without this the destructor would complain
    return GroupLeader(process.pid)


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


def wait(children: Sequence[GroupLeader], deadline: float, grace_seconds: float, alive: Callable[[], bool]) -> bool:
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
