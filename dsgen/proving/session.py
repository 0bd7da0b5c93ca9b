"""The child process in which proofs run: started apart from the caller's environment, asked in JSON, always ended."""

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
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from dsgen.shapes.errors import mistake

__all__ = ["Session", "SessionLostError", "launch", "missing_package", "start"]

_GREETING_SECONDS = 300.0  # imports of torch and DeepSpeed from a cold network disk
_MARGIN_SECONDS = 30.0  # beyond a job's own timeout, which the child watches itself
_END_SECONDS = 10.0  # for the child to end its ranks and remove their locks
_LAST_WORDS = 400  # characters of the child's log in an error

# The engine must not load the rest of dsgen, whose dependencies the other interpreter may lack: it gets an empty
# package `dsgen` that only knows where its modules lie.
_BOOT = (
    "import sys, types; package = types.ModuleType('dsgen'); package.__path__ = [sys.argv[1]]; "
    "sys.modules['dsgen'] = package; from dsgen.engine.{server} import main; sys.exit(main(sys.argv[2:]))"
)
_PACKAGES = ("torch", "deepspeed", "transformers")
# What launchers leave in the environment; a proof is a world of its own.
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


class SessionLostError(Exception):
    """The child process ended or fell silent; the text says how."""


def missing_package() -> str | None:
    """The first package that a proof needs and this interpreter lacks; nothing is imported."""
    from importlib.util import find_spec

    return next((package for package in _PACKAGES if find_spec(package) is None), None)


class Session:
    """A running child process."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process = process
        self._buffer = b""
        self.folder = folder
        self.greeting: Mapping[str, Any] = {}
        self.jobs = 0

    def ask(self, message: Mapping[str, Any], timeout_seconds: float) -> dict[str, Any]:
        """Send one JSON object and wait for the one that answers it.

        Raises:
            SessionLostError: The child ended, did not answer in time, or answered something else.
        """
        pipe: IO[bytes] | None = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(json.dumps(message).encode() + b"\n")
            pipe.flush()
        except BrokenPipeError:
            raise SessionLostError(self._last_words()) from None
        line = self._line(time.monotonic() + timeout_seconds)
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:  # another program than Python answers anything
            raise SessionLostError(f"it answered {line[:60].decode(errors='replace').strip()!r}") from None
        return answer

    def prove(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Run one job in a folder of its own; its timeout is the child's to keep."""
        return self.ask(job, float(job["timeout_seconds"]) + _MARGIN_SECONDS)

    def job_folder(self) -> Path:
        """A new folder for everything that one job writes."""
        self.jobs += 1
        folder = self.folder / f"job{self.jobs}"
        folder.mkdir()
        return folder

    def number(self) -> int:
        """A number that no other proof on this machine uses at this time: DeepSpeed names shared memory by it."""
        return self._process.pid * 10_000 + self.jobs

    def _line(self, deadline: float) -> bytes:
        pipe: IO[bytes] | None = self._process.stdout
        assert pipe is not None
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise SessionLostError("the engine process gave no answer in time")
                data = os.read(pipe.fileno(), 1 << 16)
                if not data:
                    raise SessionLostError(self._last_words())
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _last_words(self) -> str:
        code = self._process.wait()
        logs = [self.folder / name for name in ("server.log", "start.log")]
        text = "".join(log.read_text(errors="replace") for log in logs if log.exists()).strip()
        return f"the engine process ended with code {code}: {text[-_LAST_WORDS:]}"

    def end(self) -> None:
        """End the child, its ranks and its compilers; it removes the locks of an unfinished build itself."""
        process = self._process
        try:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_END_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


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
    folder = Path(tempfile.mkdtemp(prefix="dsgen-prove-"))
    try:
        session = Session(launch(python, folder, server), folder)
        try:
            setup = {"device": device, "ranks": ranks, "folder": str(folder)}
            session.greeting = session.ask(setup, _GREETING_SECONDS)
            yield session
        finally:
            session.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def launch(python: str, folder: Path, server: str) -> subprocess.Popen[bytes]:
    """A module of dsgen.engine as a child process with pipes, in a group of its own; its log is start.log.

    Args:
        python: Interpreter of the child.
        folder: Where it works, and where its log goes.
        server: The module.

    Raises:
        DsgenError: The interpreter cannot be run.
    """
    command = [python, "-c", _BOOT.format(server=server), str(Path(__file__).parent.parent)]
    try:
        with (folder / "start.log").open("wb") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env=_environment(python),
                start_new_session=True,
            )
    except OSError as error:
        reason = error.strerror or str(error)
        raise mistake(
            f"cannot run the interpreter {python}: {reason}", must="it must be a Python program", code="lost"
        ) from None
