"""What the child processes that answer one question after another have in common: the channel, the end, one fork each.

JSON lines in on stdin, JSON lines out on stdout: a greeting, then an answer to each question. torch and DeepSpeed are
imported once; a fork for each question gives it its own world of ranks and its own log, and one that hangs or crashes
takes no other with it.
"""

import contextlib
import gc
import importlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from dsgen.engine.children import GroupLeader, end, fork, send_output_to, wait

__all__ = ["Forked", "ask_cpu_once", "in_fork", "is_gone", "preload", "remove_own_folder", "serve"]

_TAIL_CHARACTERS = 400  # of the log of a fork that died
# For a parent whose pipe has ended to be gone: Linux closes the files of a process that is killed before it gives its
# children to another (kernel/exit.c, do_exit: exit_files, then exit_notify).
_GOING_SECONDS = 2.0
_LOOK_SECONDS = 0.01
_OWN_FOLDER = "dsgen-"  # what the name of a folder begins with that proving.children makes

Message = dict[str, Any]


class Forked(NamedTuple):
    """How a fork ended.

    Attributes:
        report: What it wrote; None where it wrote nothing in time.
        in_time: Whether it ended by itself.
        code: Its exit code; negative: the signal.
        tail: The end of what it printed.
    """

    report: Message | None
    in_time: bool
    code: int
    tail: str


def serve(
    greet: Callable[[Message], Message], answer: Callable[[Message], Message], close: Callable[[], object]
) -> int:
    """Serve questions until stdin ends; then, and when it is told to end, what was started is closed.

    Args:
        greet: From the first line (`folder`, and what the server needs) to the greeting; with `missing`, no question
            is answered.
        answer: From a question to its answer.
        close: Ends what is still running.
    """
    starter = os.environ.pop("DSGEN_PARENT", "")  # said by who made a folder for us (proving.children)
    parent = int(starter or os.getppid())
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it then ends us
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    first = sys.stdin.readline()
    if not first:
        if starter and is_gone(parent):  # and has left its folder, in which we were started
            remove_own_folder()
        return 1
    setup = json.loads(first)
    ended = False
    send_output_to(Path(setup["folder"]) / "server.log")
    try:
        gc.disable()  # of what modules make nothing is garbage; a search through it all takes a second
        greeting = greet(setup)
        gc.freeze()  # DeepSpeed collects garbage often: a fork would look through, and copy, all that was imported
        gc.enable()
        _say(channel, greeting)
        if "missing" not in greeting:
            for line in sys.stdin:
                _say(channel, answer(json.loads(line)))
            ended = True
    except BrokenPipeError:  # nobody reads any more
        ended = True
    finally:
        close()
        if is_gone(parent, _GOING_SECONDS if ended else 0.0):  # nobody is left to remove it
            shutil.rmtree(setup["folder"], ignore_errors=True)
    return 0


def is_gone(parent: int, seconds: float = _GOING_SECONDS) -> bool:
    """Whether the parent is gone, or goes within some seconds; one that lives ends us meanwhile."""
    deadline = time.monotonic() + seconds
    while os.getppid() == parent:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def remove_own_folder() -> None:
    """Remove the folder that a parent made for us and started us in (proving.children); no other one."""
    if (folder := Path.cwd()).name.startswith(_OWN_FOLDER):
        shutil.rmtree(folder, ignore_errors=True)


def _stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _say(channel: Any, message: Message) -> None:
    channel.write(json.dumps(message, default=str) + "\n")
    channel.flush()


def preload(names: Iterable[str]) -> None:
    """Import what every fork would import."""
    for name in names:
        with contextlib.suppress(ImportError):  # not every release has every module
            importlib.import_module(name)


def ask_cpu_once() -> None:
    """Ask for the CPU's name here, and not in every fork and for every operator: DeepSpeed's CPU Adam and builders do.

    py-cpuinfo starts a program that counts the clock's ticks for a second, and spins meanwhile. DeepSpeed reads vendor,
    architecture and flags (ops/adam/cpu_adam.py, ops/op_builder/builder.py), and no clock. A py-cpuinfo that is made
    otherwise is asked as ever.
    """
    with contextlib.suppress(ImportError, AttributeError):
        package: Any = importlib.import_module("cpuinfo")
        module: Any = importlib.import_module("cpuinfo.cpuinfo")
        module.CPUID.get_raw_hz = lambda self: 0
        told = module._get_cpu_info_internal()
        package.get_cpu_info = lambda: told


def in_fork(
    work: Callable[[], bool], report: Path, log: Path, seconds: float, children: list[GroupLeader], parent: int
) -> Forked:
    """Run a function in a fork, and read what it reported.

    Args:
        work: It writes the report.
        report, log: Its report, a JSON object, and what it prints.
        seconds: The longest that it may take.
        children: Those that `close` ends, should this process be told to end meanwhile.
        parent: The process that asked; when it is gone, so are we.
    """
    children[:] = [fork(work, log)]
    in_time = wait(children, time.monotonic() + seconds, 0.0, lambda: os.getppid() == parent)
    code = end(children)[0]
    children.clear()
    told = json.loads(report.read_text(encoding="utf-8")) if in_time and report.exists() else None
    tail = log.read_text(encoding="utf-8", errors="replace")[-_TAIL_CHARACTERS:] if log.exists() else ""
    return Forked(told, in_time, code, tail)
