"""Child process of `dsgen effective`: imports DeepSpeed once, then loads one config after another, each in a fork.

A greeting, then one answer per config (engine.serving).
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import platform
from pathlib import Path
from typing import Any

from dsgen.engine.children import GroupLeader, end
from dsgen.engine.effective import parsing
from dsgen.engine.serving import in_fork, preload, serve

__all__ = ["main"]

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
    children: list[GroupLeader] = []
    return serve(lambda _: _greet(), lambda job: _answer(job, children, parent), lambda: end(children))


def _greet() -> dict[str, Any]:
    """Import the engine on the CPU: to read a config it needs no GPU, and CUDA would not survive a fork."""
    for package in ("torch", "deepspeed"):
        if importlib.util.find_spec(package) is None:
            return {"missing": package}
    os.environ.update(CUDA_VISIBLE_DEVICES="", DS_ACCELERATOR="cpu")
    import torch

    torch.set_num_threads(1)
    import deepspeed

    preload(_PRELOAD)
    # The CPU's collectives would otherwise be compiled as soon as ranks are joined; nothing is sent here.
    compatible = importlib.import_module("deepspeed.ops").__compatible_ops__
    compatible["deepspeed_shm_comm"] = False
    versions = {package.__name__: package.__version__.strip() for package in (deepspeed, torch)}
    return {"versions": {**versions, "python": platform.python_version()}}


def _answer(job: dict[str, Any], children: list[GroupLeader], parent: int) -> dict[str, Any]:
    """One config, loaded in a fork; the report of `parsing.run`, or how the fork ended instead."""
    folder = Path(job["folder"])
    report, log = folder / "report.json", folder / "load.log"
    told = in_fork(functools.partial(parsing.run, job, report), report, log, job["timeout_seconds"], children, parent)
    if told.report is not None:
        return told.report
    return {"died": {"timed_out": not told.in_time, "code": told.code, "tail": told.tail}}
