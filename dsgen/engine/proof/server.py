"""Child process of `dsgen prove`: imports torch and DeepSpeed once, then starts the ranks of one config after another.

JSON lines in on stdin, JSON lines out on stdout: a greeting, then one answer per job. On a CPU ranks are forked, which
spares each the imports; with CUDA, which does not survive a fork, each rank is a fresh process.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from dsgen.engine.children import GroupLeader, die_with_parent, end, fork, spawn, wait
from dsgen.engine.proof import cpu_stand_ins, locks, ops, ranks
from dsgen.engine.serving import ask_cpu_once, preload, serve

__all__ = ["PRELOAD", "main"]

_GRACE_SECONDS = 5.0  # for the other ranks to end by themselves once one has failed
_LAST_SECONDS = 3.0  # for killed compilers to leave the folder of a lock
_SHARED_MEMORY = Path("/dev/shm")  # where DeepSpeed's CPU collectives keep files, left behind by a killed rank
_TAIL_CHARACTERS = 600  # of a rank's log: a crash's last words
_BOOT = 4  # the first entries of sys.orig_argv: interpreter, -c, code, package folder
# Imported by most of `initialize`; torch._dynamo must come before deepspeed.zero.Init patches tensor constructors.
PRELOAD = (
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "torch._dynamo.repro.after_dynamo",
    "torch._subclasses.schema_check_mode",
    "torch.profiler._cupti_monitor",
    "torch.utils.serialization.config",
    "deepspeed.comm.mori",
    "deepspeed.module_inject.auto_ep_config",
    "deepspeed.module_inject.auto_ep_layer",
    "deepspeed.module_inject.auto_tp",
    "deepspeed.module_inject.tp_plan_converter",
    "deepspeed.ops.op_builder.all_ops",
    "deepspeed.runtime.superoffload.superoffload_stage3",
    "deepspeed.runtime.zero.muon.muon_optimizer",
    "deepspeed.runtime.zero.stage_1_and_2",
    "deepspeed.runtime.zero.stage3",
    "deepspeed.utils.pin_memory",
    "transformers.models.llama.modeling_llama",
)


def main(arguments: list[str]) -> int:
    """Serve jobs, or with CUDA be one rank (`rank JOB NUMBER`) or the builder (`build JOB`)."""
    if arguments:
        die_with_parent()
        job = json.loads(Path(arguments[1]).read_text(encoding="utf-8"))
        return 0 if _work(job, int(arguments[2]) if arguments[0] == "rank" else None) else 1
    server = Server(os.getppid())
    devices: list[str] = []

    def greet(setup: dict[str, Any]) -> dict[str, Any]:
        greeting = _greet(setup)
        devices[:] = [str(greeting.get("device"))]
        return greeting

    return serve(greet, lambda job: server.prove({**job, "device": devices[0]}), server.close)


def _greet(setup: dict[str, Any]) -> dict[str, Any]:
    """Import the engine and choose the device: CUDA where there is a GPU for every rank."""
    for package in ("torch", "deepspeed", "transformers"):
        if importlib.util.find_spec(package) is None:
            return {"missing": package}
    import torch

    device = setup["device"]
    gpus = torch.cuda.device_count()  # asks NVML, so CUDA is not yet started and can still be hidden
    if device == "auto":
        device = "cuda" if gpus >= setup["ranks"] else "cpu"
    if device == "cpu":
        os.environ.update(CUDA_VISIBLE_DEVICES="", DS_ACCELERATOR="cpu")
        torch.set_num_threads(1)
    import deepspeed
    import transformers

    if device == "cpu":
        preload(PRELOAD)
        cpu_stand_ins.complete_in_order()
        cpu_stand_ins.share_memory(False)  # DeepSpeed looks through its operators once, and a rank need not
        ask_cpu_once()
    versions = {package.__name__: package.__version__ for package in (deepspeed, torch, transformers)}
    return {
        "device": device,
        "gpus": gpus,
        "versions": {**versions, "python": platform.python_version()},
        **{
            name: metadata.version(name) if importlib.util.find_spec(name) is not None else None
            for name in ("peft", "bitsandbytes")
        },
    }


class Server:
    """The children of the job at hand, and the operators that earlier jobs had built."""

    def __init__(self, parent: int) -> None:
        self.parent = parent
        self.children: list[GroupLeader] = []
        self.built: set[str] = set()
        self.root: Path | None = None

    def alive(self) -> bool:
        """Whether the process that asked for the proofs still lives."""
        return os.getppid() == self.parent

    def close(self) -> None:
        """End all children, and remove the locks that their builds leave."""
        end(self.children)
        self.children = []
        if self.root is not None:
            locks.clear_stale(self.root, _LAST_SECONDS)

    def prove(self, job: dict[str, Any]) -> dict[str, Any]:
        """Build what is missing, run the ranks of one job, and gather their reports."""
        began = time.monotonic()
        self.root = ops.extensions_root()
        deadline = began + job["timeout_seconds"]
        if job["device"] == "cpu":
            cpu_stand_ins.share_memory(job["tp"] > 1)
        if job["device"] == "cpu" and job["tp"] > 1:
            # `init_distributed` builds it on a CPU, whatever the config says.
            job = {**job, "operators": ["ShareMemCommBuilder", *job["operators"]]}
            if not os.access(_SHARED_MEMORY, os.W_OK):  # its ranks would wait for each other without end
                why = f"DeepSpeed's collectives on a CPU keep files in {_SHARED_MEMORY}, which cannot be written"
                job = {**job, "refused": {"ShareMemCommBuilder": why}}
        answer: dict[str, Any] = {"build": self.build(job, deadline), "ranks": [], "exits": [], "tails": []}
        if not answer["build"]["failed"]:
            answer.update(self.run(job, deadline))
        answer["seconds"] = round(time.monotonic() - began, 2)
        return answer

    def run(self, job: dict[str, Any], deadline: float) -> dict[str, Any]:
        """Start the ranks, wait for them, end them."""
        folder = Path(job["folder"])
        stopped: list[int] = []
        try:
            for rank in range(job["ranks"]):
                self.start(job, rank)
            in_time = wait(self.children, deadline, _GRACE_SECONDS, self.alive)
            # By us, below: their exit codes say nothing of how they would have ended.
            stopped = [rank for rank, child in enumerate(self.children) if not child.ended()]
        finally:
            exits = end(self.children)
            self.children = []
            for left in _SHARED_MEMORY.glob(f"deepspeed_*_{job['number']}_*"):
                left.unlink(missing_ok=True)
        return {
            "timed_out": not in_time,
            "exits": exits,
            "stopped": stopped,
            "ranks": [_read(folder / f"rank{rank}.json") for rank in range(job["ranks"])],
            "tails": [_tail(folder / f"rank{rank}.log") for rank in range(job["ranks"])],
        }

    def build(self, job: dict[str, Any], deadline: float) -> dict[str, Any]:
        """Have a child build the operators not built by an earlier job."""
        if "refused" in job:
            return {"cleared": [], "failed": job["refused"], "seconds": {}}
        names = [name for name in job["operators"] if name not in self.built]
        if not names:
            return {"cleared": [], "failed": {}, "seconds": {}}
        self.start({**job, "operators": names}, None)
        in_time = wait(self.children, deadline, 0.0, self.alive)
        self.close()
        result = _read(Path(job["folder"]) / "build.json")
        if result is None:
            why = "the builder was killed" if in_time else f"it was not built within {job['timeout_seconds']:g} s"
            return {"cleared": [], "failed": dict.fromkeys(names, why), "seconds": {}}
        new = set(names) - set(result["failed"])
        if job["device"] == "cpu":
            for name in sorted(new):
                ops.load(name)  # forked ranks inherit it
        self.built |= new
        return dict(result)

    def start(self, job: dict[str, Any], rank: int | None) -> None:
        """Start one rank, or the builder when rank is None."""
        folder = Path(job["folder"])
        log = folder / ("build.log" if rank is None else f"rank{rank}.log")
        if job["device"] == "cpu":
            work: Callable[[], bool] = functools.partial(_work, job, rank)
            self.children.append(fork(work, log))
            return
        file = folder / "job.json"
        file.write_text(json.dumps(job), encoding="utf-8")
        role = ["build", str(file)] if rank is None else ["rank", str(file), str(rank)]
        self.children.append(spawn([*sys.orig_argv[:_BOOT], *role], log))


def _work(job: dict[str, Any], rank: int | None) -> bool:
    """Be one rank, or the builder when rank is None; whether all went well."""
    if rank is None:
        ops.build(job["operators"], job["timeout_seconds"], Path(job["folder"]) / "build.json")
        return True
    return ranks.run(job, rank)["error"] is None


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def _tail(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[-_TAIL_CHARACTERS:]
    except FileNotFoundError:
        return ""
