"""Child process that starts configs in worlds of twins: torch and DeepSpeed are imported once, each start is a fork.

JSON lines in on stdin, JSON lines out on stdout: a greeting, then one answer per question: `parse` or `start`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
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
from dsgen.engine.proof import world_start

__all__ = ["main"]

_TAIL_CHARACTERS = 400  # of the log of a start that died
_PRELOAD = (
    "torch._dynamo",
    "deepspeed.runtime.zero.stage_1_and_2",
    "deepspeed.runtime.zero.stage3",
    "deepspeed.module_inject.auto_tp",
    "transformers.models.auto.modeling_auto",
    "dsgen.engine.proof.twins",
)


def main(arguments: list[str]) -> int:
    """Serve questions until stdin ends; `arguments` is empty."""
    parent = os.getppid()
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it then ends us
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    setup = json.loads(sys.stdin.readline())
    send_output_to(Path(setup["folder"]) / "server.log")
    children: list[GroupLeader] = []
    try:
        _say(channel, _greet())
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
    channel.write(json.dumps(message, default=str) + "\n")
    channel.flush()


def _greet() -> dict[str, Any]:
    """Import the engine on the CPU."""
    os.environ.update(CUDA_VISIBLE_DEVICES="", DS_ACCELERATOR="cpu")
    import torch

    torch.set_num_threads(1)
    import deepspeed
    import transformers
    from deepspeed.accelerator import get_accelerator

    from dsgen.engine.proof import operators_in_torch

    for name in _PRELOAD:
        with contextlib.suppress(ImportError):  # not every release has every module
            importlib.import_module(name)
    operators_in_torch.install()
    with contextlib.suppress(ImportError):  # CPU Adam asks for the CPU's name, which takes lscpu a second
        cpuinfo: Any = importlib.import_module("cpuinfo")
        cpuinfo.get_cpu_info = functools.lru_cache(maxsize=None)(cpuinfo.get_cpu_info)
        cpuinfo.get_cpu_info()
    # The CPU's own collectives would be compiled as soon as ranks are joined; nothing is sent here.
    importlib.import_module("deepspeed.ops").__compatible_ops__["deepspeed_shm_comm"] = False
    type(get_accelerator()).is_fp16_supported = lambda self: True  # DeepSpeed refuses fp16 on some CPUs
    versions = {package.__name__: package.__version__ for package in (deepspeed, torch, transformers)}
    return {"versions": {**versions, "python": platform.python_version()}}


def _answer(question: dict[str, Any], children: list[GroupLeader], parent: int) -> dict[str, Any]:
    if "parse" in question:
        return {"parsed": [world_start.parse(one["config"], one["world"], one["target"]) for one in question["parse"]]}
    job = question["start"]
    folder = Path(job["folder"])
    report, log = folder / "report.json", folder / "start.log"
    began = time.monotonic()
    children[:] = [fork(functools.partial(world_start.run, job, report), log)]
    in_time = wait(children, began + job["timeout_seconds"], 0.0, lambda: os.getppid() == parent)
    code = end(children)[0]
    children.clear()
    seconds = round(time.monotonic() - began, 3)
    if in_time and report.exists():
        told = json.loads(report.read_text(encoding="utf-8"))
        for name in told.pop("imported"):  # so that later starts inherit it: the first spends most of its time on that
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        return {**told, "seconds": seconds}
    tail = log.read_text(encoding="utf-8", errors="replace")[-_TAIL_CHARACTERS:] if log.exists() else ""
    why = "it did not end in time" if not in_time else f"it ended with code {code}: {tail}"
    return {"phase": "load", "observed": {}, "error": why, "seconds": seconds}
