"""Child process that starts configs in worlds of twins: torch and DeepSpeed are imported once, each start is a fork.

A greeting, then one answer per question, `parse` or `start` (engine.serving).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import platform
import time
from pathlib import Path
from typing import Any

from dsgen.engine.children import GroupLeader, end
from dsgen.engine.proof import world_start
from dsgen.engine.serving import ask_cpu_once, in_fork, preload, serve

__all__ = ["main"]

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
    children: list[GroupLeader] = []
    return serve(lambda _: _greet(), lambda question: _answer(question, children, parent), lambda: end(children))


def _greet() -> dict[str, Any]:
    """Import the engine on the CPU."""
    os.environ.update(CUDA_VISIBLE_DEVICES="", DS_ACCELERATOR="cpu")
    import torch

    torch.set_num_threads(1)
    import deepspeed
    import transformers
    from deepspeed.accelerator import get_accelerator

    from dsgen.engine.proof import cpu_stand_ins, operators_in_torch

    preload(_PRELOAD)
    for let in (cpu_stand_ins.allow_fp16, cpu_stand_ins.name_device, cpu_stand_ins.allow_files,
                cpu_stand_ins.allow_locked_pages):  # fmt: skip
        let(get_accelerator())
    operators_in_torch.install()
    ask_cpu_once()
    # The CPU's own collectives would be compiled as soon as ranks are joined; nothing is sent here.
    importlib.import_module("deepspeed.ops").__compatible_ops__["deepspeed_shm_comm"] = False
    versions = {package.__name__: package.__version__ for package in (deepspeed, torch, transformers)}
    return {"versions": {**versions, "python": platform.python_version()}}


def _answer(question: dict[str, Any], children: list[GroupLeader], parent: int) -> dict[str, Any]:
    if "parse" in question:
        return {"parsed": [world_start.parse(**one) for one in question["parse"]]}
    job = question["start"]
    folder = Path(job["folder"])
    report, log = folder / "report.json", folder / "start.log"
    began = time.monotonic()
    forked = in_fork(
        functools.partial(world_start.run, job, report), report, log, job["timeout_seconds"], children, parent
    )
    seconds = round(time.monotonic() - began, 3)
    if (told := forked.report) is not None:
        for name in told.pop("imported"):  # so that later starts inherit it: the first spends most of its time on that
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        gc.freeze()
        return {**told, "seconds": seconds}
    why = "it did not end in time" if not forked.in_time else f"it ended with code {forked.code}: {forked.tail}"
    return {"phase": "load", "observed": {}, "error": why, "seconds": seconds}
