"""The child process in which proofs run: greeted once, then asked for one job after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dsgen.proving import children
from dsgen.proving.children import Child, LostError

__all__ = ["Session", "SessionLostError", "missing_package", "start"]

_GREETING_SECONDS = 300.0  # imports of torch and DeepSpeed from a cold network disk
_MARGIN_SECONDS = 30.0  # beyond a job's own timeout, which the child watches itself
_END_SECONDS = 10.0  # for the child to end its ranks and remove their locks
_NUMBERS = 10_000  # jobs of one child that have a number of their own
_SHARED_MEMORY = Path("/dev/shm")
_PACKAGES = ("torch", "deepspeed", "transformers")

SessionLostError = LostError


def missing_package() -> str | None:
    """The first package that a proof needs and this interpreter lacks; nothing is imported."""
    from importlib.util import find_spec

    return next((package for package in _PACKAGES if find_spec(package) is None), None)


class Session:
    """A running child process that has said what it is."""

    def __init__(self, child: Child, greeting: Mapping[str, Any]) -> None:
        self._child = child
        self.greeting = greeting
        self.jobs = 0

    def ask(self, message: Mapping[str, Any], timeout_seconds: float) -> dict[str, Any]:
        """Send one JSON object and wait for the one that answers it.

        Raises:
            SessionLostError: The child ended, did not answer in time, or answered something else.
        """
        return self._child.ask(message, timeout_seconds)

    def prove(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Run one job in a folder of its own; its timeout is the child's to keep."""
        return self.ask(job, float(job["timeout_seconds"]) + _MARGIN_SECONDS)

    def job_folder(self) -> Path:
        """A new folder for everything that one job writes."""
        self.jobs += 1
        folder = self._child.folder / f"job{self.jobs}"
        folder.mkdir()
        return folder

    def number(self) -> int:
        """A number that no other proof on this machine uses at this time: DeepSpeed names shared memory by it."""
        return self._child.pid * _NUMBERS + self.jobs


@contextlib.contextmanager
def start(python: str, device: str, ranks: int, server: str = "proof.server") -> Iterator[Session]:
    """Start the child process, and end it whatever happens.

    Args:
        python: Interpreter of the child.
        device: "auto", "cpu" or "cuda".
        ranks: The most ranks that a job will ask for; "auto" takes CUDA where there is a GPU for each.
        server: The module of dsgen.engine that the child runs.

    Raises:
        DsgenError: The interpreter cannot be run or lacks a package.
        SessionLostError: It died while it started.
    """
    with contextlib.ExitStack() as stack:
        child = stack.enter_context(children.start(python, server, "prove", _END_SECONDS))
        # Of a child that was killed itself, nobody else removes it.
        stack.callback(_remove_shared_memory, child.pid)
        setup = {"device": device, "ranks": ranks, "folder": str(child.folder)}
        yield Session(child, child.ask(setup, _GREETING_SECONDS))


def _remove_shared_memory(pid: int) -> None:
    """Remove what DeepSpeed's CPU collectives keep under the numbers of a child's jobs."""
    for left in _SHARED_MEMORY.glob(f"deepspeed_*_{pid}[0-9][0-9][0-9][0-9]_*"):
        left.unlink(missing_ok=True)
