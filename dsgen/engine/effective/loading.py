"""Child process of `dsgen effective`: imports DeepSpeed once, then loads one config after another, each in a fork.

JSON lines in on stdin, JSON lines out on stdout: a greeting, then one answer per config. A fork per config gives each
its own world of ranks and its own log, and one that hangs or crashes takes no other with it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import json
import os
import platform
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from dsgen.engine.children import GroupLeader, end, fork, send_output_to, wait
from dsgen.engine.effective import parsing

__all__ = ["main"]

_TAIL_CHARACTERS = 400  # of the log of a fork that died
# What every config needs; imported before the forks, so that they need not.
_PRELOAD = (
    "hjson",
    "torch._dynamo",  # any optimizer of torch imports it
    "deepspeed.runtime.engine",
    "deepspeed.ops.adam",
    "deepspeed.ops.lion",
    "deepspeed.ops.adagrad",
    "deepspeed.ops.lamb",
    "torch.testing._internal.distributed.fake_pg",
)


def main(arguments: list[str]) -> int:
    """Serve configs until stdin ends; `arguments` is empty."""
    parent = os.getppid()
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it then ends us
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    setup = json.loads(sys.stdin.readline())
    send_output_to(Path(setup["folder"]) / "server.log")
    children: list[GroupLeader] = []
    try:
        greeting = _greet()
        _say(channel, greeting)
        if "missing" not in greeting:
            for line in sys.stdin:
                _say(channel, _answer(json.loads(line), children, parent))
    finally:
        end(children)
        if os.getppid() != parent:  # nobody is left to remove it
            shutil.rmtree(setup["folder"], ignore_errors=True)
    return 0


def _stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _say(channel: Any, message: dict[str, Any]) -> None:
    channel.write(json.dumps(message) + "\n")
    channel.flush()


def _greet() -> dict[str, Any]:
    """Import the engine on the CPU: to read a config it needs no GPU, and CUDA would not survive a fork."""
    for package in ("torch", "deepspeed"):
        if importlib.util.find_spec(package) is None:
            return {"missing": package}
    os.environ.update(CUDA_VISIBLE_DEVICES="", DS_ACCELERATOR="cpu")
    import torch

    torch.set_num_threads(1)
    import deepspeed

    for name in _PRELOAD:
        with contextlib.suppress(ImportError):  # not every release has every module
            importlib.import_module(name)
    # The CPU's collectives would otherwise be compiled as soon as ranks are joined; nothing is sent here.
    compatible = importlib.import_module("deepspeed.ops").__compatible_ops__
    compatible["deepspeed_shm_comm"] = False
    versions = {package.__name__: package.__version__.strip() for package in (deepspeed, torch)}
    return {"versions": {**versions, "python": platform.python_version()}}


def _answer(job: dict[str, Any], children: list[GroupLeader], parent: int) -> dict[str, Any]:
    """One config, loaded in a fork; the report of `parsing.run`, or how the fork ended instead."""
    folder = Path(job["folder"])
    report, log = folder / "report.json", folder / "load.log"
    children[:] = [fork(functools.partial(parsing.run, job, report), log)]
    in_time = wait(children, time.monotonic() + job["timeout_seconds"], 0.0, lambda: os.getppid() == parent)
    code = end(children)[0]
    children.clear()
    if in_time and report.exists():
        answer: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        return answer
    tail = log.read_text(encoding="utf-8", errors="replace")[-_TAIL_CHARACTERS:] if log.exists() else ""
    return {"died": {"timed_out": not in_time, "code": code, "tail": tail}}
