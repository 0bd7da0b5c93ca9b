"""The child process of a simulation: started with one request, waited for, and ended whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from dsgen.proving import session
from dsgen.shapes.errors import DsgenError, mistake

__all__ = ["ask"]

_SERVER = "simulate.__main__"
_LAST_WORDS = 400  # characters of the child's log in an error
# Sections that make DeepSpeed write or measure, and hold no tensor.
_OBSERVERS = ("tensorboard", "wandb", "csv_monitor", "comet", "flops_profiler", "comms_logger")
_NVME = ("offload_optimizer", "offload_param")
_ENDINGS = ("SIGTERM", "SIGHUP")  # end a program at once unless it says otherwise; Windows has no SIGHUP


def ask(request: Mapping[str, Any], python: str, timeout_seconds: float) -> dict[str, Any]:
    """The child's answer to one request.

    Args:
        request: As `dsgen.engine.simulate` reads it; its config's paths are turned to a temporary folder.
        python: Interpreter of the child.
        timeout_seconds: For everything, the imports of torch and DeepSpeed included.

    Raises:
        DsgenError: The interpreter cannot be run, the time is over, or the child ended without an answer.
    """
    with _leaving():
        return _asked(request, python, timeout_seconds)


def _asked(request: Mapping[str, Any], python: str, timeout_seconds: float) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="dsgen-simulate-"))
    try:
        process = session.launch(python, folder, _SERVER)
        try:
            question = json.dumps({**request, "config": _apart(request["config"], str(folder))})
            try:
                answered, _ = process.communicate(question.encode(), timeout_seconds)
            except subprocess.TimeoutExpired:
                raise mistake(
                    f"the simulation was not done within {timeout_seconds:g} s",
                    todo="Allow more with --timeout, or take fewer steps or micro-batches: one of each shows the peak.",
                    code="lost",
                ) from None
            return _answer(answered, process.returncode, folder)
        finally:
            _end(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _SignalError(BaseException):
    """A signal that ends this program has come."""


@contextlib.contextmanager
def _leaving() -> Iterator[None]:
    """Let a signal that ends this program do so only when the child and its folder are gone."""
    numbers = [getattr(signal, name) for name in _ENDINGS if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():  # where no handler can be set
        numbers = []
    numbers = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    come: list[int] = []

    def leave(number: int, _: FrameType | None) -> None:
        come.append(number)
        raise _SignalError

    try:
        for number in numbers:
            signal.signal(number, leave)
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        for number in come:
            os.kill(os.getpid(), number)


def _apart(config: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """The config without what observes a run, and with its files in a folder."""
    used: dict[str, Any] = json.loads(json.dumps(config))
    for name in _OBSERVERS:
        section = used.get(name)
        if isinstance(section, dict) and section.get("enabled"):
            section["enabled"] = False
    zero = used.get("zero_optimization")
    for name in _NVME:
        section = zero.get(name) if isinstance(zero, dict) else None
        if isinstance(section, dict) and section.get("nvme_path") is not None:
            section["nvme_path"] = folder
    return used


def _answer(answered: bytes, code: int, folder: Path) -> dict[str, Any]:
    try:
        found = json.loads(answered)
        if isinstance(found, dict):
            return found
    except ValueError:  # nothing, half of it, or the words of another program
        pass
    raise _lost(answered, code, folder)


def _lost(answered: bytes, code: int, folder: Path) -> DsgenError:
    log = folder / "start.log"
    words = " ".join((log.read_text(errors="replace") if log.exists() else "").split())[-_LAST_WORDS:]
    if code == -signal.SIGKILL:
        return mistake(
            "the system killed the process that simulates",
            must="this machine's own memory must hold it: 0.5 to 2 GB",
            todo="Free memory, or simulate where there is more.",
            code="lost",
        )
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"code {code}"
    said = words or repr(answered[:60].decode(errors="replace").strip())
    return mistake(
        f"the process that simulates ended with {how}: {said}", must="it must run torch and deepspeed", code="lost"
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the child and everything it started; nothing is lost, for it writes into its own folder only."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
