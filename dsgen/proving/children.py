"""A child process of dsgen.engine: started apart from the caller's environment, asked in JSON, always ended."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import IO, Any

from dsgen.shapes.errors import mistake

__all__ = ["Child", "LostError", "start"]

_LAST_WORDS = 400  # characters of the child's log in an error
_END_SECONDS = 10.0  # for a child that has closed its pipes to end
_LOGS = ("server.log", "start.log")
_ENDINGS = ("SIGTERM", "SIGHUP")  # end a program at once unless it says otherwise; Windows has no SIGHUP

# The engine must not load the rest of dsgen, whose dependencies the other interpreter may lack: it gets an empty
# package `dsgen` that only knows where its modules lie.
_BOOT = (
    "import sys, types; package = types.ModuleType('dsgen'); package.__path__ = [sys.argv[1]]; "
    "sys.modules['dsgen'] = package; from dsgen.engine.{server} import main; sys.exit(main(sys.argv[2:]))"
)
# What launchers leave in the environment; a child is a world of its own.
_FOREIGN = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "CROSS_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
            "GROUP_WORLD_SIZE", "CROSS_SIZE", "LOCAL_SIZE", "PYTHONSTARTUP", "PYTHONWARNINGS")  # fmt: skip
_FOREIGN_PREFIXES = ("MASTER_", "OMPI_", "PMI_", "PMIX_", "SLURM_", "DS_", "DEEPSPEED_", "TORCHELASTIC_", "AZUREML_",
                     "ACCELERATE_")  # fmt: skip
_KEPT = ("DS_SKIP_CUDA_CHECK",)  # about the compiler of this machine, not about a run
_OWN = {
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # counting GPUs must not start CUDA, which would not survive a fork
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "WANDB_MODE": "offline",
    "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
}


class LostError(Exception):
    """The child ended or did not answer; the text says how.

    Attributes:
        code: Its exit code; negative for a signal, None while it runs on in silence or answered something else.
        words: The end of its log, or what it answered instead.
        late: Whether the time was over.
    """

    def __init__(self, message: str, *, code: int | None = None, words: str = "", late: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.words = words
        self.late = late


class Child:
    """A running child process, which reads JSON lines and answers each with one."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process = process
        self._buffer = b""
        self.folder = folder

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def ask(self, message: Mapping[str, Any], timeout_seconds: float, *, last: bool = False) -> dict[str, Any]:
        """Send one JSON object and wait for the one that answers it.

        Args:
            message: The question.
            timeout_seconds: How long to wait.
            last: Whether it is the only one, after which the child ends: the answer need not end its line.

        Raises:
            LostError: The child ended, did not answer in time, or answered something else.
        """
        pipe: IO[bytes] | None = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(json.dumps(message).encode() + b"\n")
            pipe.flush()
            if last:
                pipe.close()
        except BrokenPipeError:  # it does not read any more; what it has said tells more than that
            if not last:
                raise self._ended() from None
            timeout_seconds = min(timeout_seconds, _END_SECONDS)
        line = self._answer(time.monotonic() + timeout_seconds, last)
        with contextlib.suppress(ValueError):  # another program than Python answers anything
            answer = json.loads(line)
            if isinstance(answer, dict):
                return answer
        said = repr(line[:60].decode(errors="replace").strip())
        raise self._ended(said) if last else LostError(f"it answered {said}", words=said)

    def _answer(self, deadline: float, last: bool) -> bytes:
        """One line; of the last answer all that comes."""
        pipe: IO[bytes] | None = self._process.stdout
        assert pipe is not None
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while last or b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise LostError("the engine process gave no answer in time", late=True)
                data = os.read(pipe.fileno(), 1 << 16)
                if not data and last:
                    return self._buffer
                if not data:
                    raise self._ended()
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _ended(self, said: str = "") -> LostError:
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:  # it has closed its pipes and goes on
            return LostError("the engine process gave no answer in time", late=True)
        logs = [self.folder / name for name in _LOGS]
        text = "".join(log.read_text(errors="replace") for log in logs if log.exists()).strip()
        words = text[-_LAST_WORDS:] or said
        return LostError(f"the engine process ended with code {code}: {words}", code=code, words=words)

    def end(self, grace_seconds: float) -> None:
        """End the child and everything it started.

        Args:
            grace_seconds: How long it may take to end its own children and to tidy up, once it is told to.
        """
        process = self._process
        try:
            if grace_seconds and process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(grace_seconds)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


@contextlib.contextmanager
def start(python: str, server: str, name: str, grace_seconds: float = 0.0) -> Iterator[Child]:
    """Start a module of dsgen.engine as a child process in a folder of its own; both are gone in the end.

    A signal that ends this program does so only when they are.

    Args:
        python: Interpreter of the child.
        server: The module.
        name: What the folder's name begins with.
        grace_seconds: As `Child.end` takes them.

    Raises:
        DsgenError: The interpreter cannot be run.
    """
    with _leaving():
        folder = child = None
        try:
            with _holding():
                folder = Path(tempfile.mkdtemp(prefix=f"dsgen-{name}-"))
                child = Child(_launch(python, folder, server), folder)
            yield child
        finally:
            try:
                if child is not None:
                    child.end(grace_seconds)
            finally:
                if folder is not None:
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
        if len(come) == 1:  # a second one must not break off the ending
            raise _SignalError

    try:
        for number in numbers:
            signal.signal(number, leave)
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        for number in come[:1]:
            os.kill(os.getpid(), number)


@contextlib.contextmanager
def _holding() -> Iterator[None]:
    """Hold signals back until the block is done: one amid the start would lose the child, which then runs on."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        numbers = [getattr(signal, name) for name in ("SIGINT", *_ENDINGS) if hasattr(signal, name)]
        before = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    come: list[int] = []
    try:
        for number in before:
            signal.signal(number, lambda number, _: come.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in come[:1]:
            signal.raise_signal(number)


def _launch(python: str, folder: Path, server: str) -> subprocess.Popen[bytes]:
    """The child with pipes, in a group of its own; its log is start.log."""
    command = [python, "-c", _BOOT.format(server=server), str(Path(__file__).parent.parent)]
    try:
        with (folder / "start.log").open("wb") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env={
                    "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
                    **_environment(python),
                    "DSGEN_PARENT": str(os.getpid()),  # who may be gone before the child can ask
                },
                start_new_session=True,
            )
    except OSError as error:
        reason = error.strerror or str(error)
        raise mistake(
            f"cannot run the interpreter {python}: {reason}", must="it must be a Python program", code="lost"
        ) from None


def _environment(python: str) -> dict[str, str]:
    """The caller's environment without what launchers leave in it; the interpreter's own tools (ninja) come first."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not (name in _FOREIGN or name.startswith(_FOREIGN_PREFIXES))
    }
    tools = str(Path(python).parent)
    path = os.pathsep.join(part for part in (tools, inherited.get("PATH", os.defpath)) if part)
    return {**inherited, **_OWN, "PATH": path}
