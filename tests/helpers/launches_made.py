"""Launches of built-in profiles, and bash that reads back what was written for it."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path
from typing import Any

import dsgen
from dsgen.launching import JobLaunch, RunHost, RunProgram
from dsgen.rendering import Config

FAKE_PYTHON = '#!/usr/bin/env bash\nprintf "%s\\0" "$PWD" "$@"\n'


@functools.cache
def config(**wanted: Any) -> Config:
    """A config of a scenario's fields, rendered once."""
    return dsgen.render(wanted)


ONE_NODE = {"hw": "a100-40g", "model": "7b"}
FOUR_NODES = {"hw": "h100-80g", "model": "llama-3.1-70b", "gpus": 32, "network": "ib-ndr-400g", "total_steps": 1000}
OFFLOADED = {"hw": "rtx4090-24g", "model": "llama-3.1-8b", "gpus": 2, "offload": "optimizer"}


# What only a person knows, by framework.
FILLED = {
    "axolotl": (("base_model", "/m/x"), ("datasets", [{"path": "a.jsonl", "type": "chat_template"}])),
    "llama-factory": (("model_name_or_path", "/m/x"), ("template", "qwen"), ("dataset", "a")),
    "ms-swift": (("model", "/m/x"), ("dataset", ["a.jsonl"])),
}


def hosts(count: int, slots: int) -> tuple[RunHost, ...]:
    """Hosts worker-1 and so on."""
    return tuple(RunHost(f"worker-{place}", slots) for place in range(1, count + 1))


def launch(wanted: dict[str, Any] | None = None, **fields: Any) -> JobLaunch:
    """A launch of train.py; what is not said is deepspeed's, on the machines that the job needs."""
    made = config(**(ONE_NODE if wanted is None else wanted))
    job = made.plan.job
    program = RunProgram(
        script="/srv/train.py", config_argument="--deepspeed_config", checkpoint_argument="--checkpoints"
    )
    named = hosts(job.nodes, job.gpus_per_node) if job.nodes > 1 else ()
    known = {"config": made, "target": "deepspeed", "launcher": "deepspeed", "folder": "/runs/first",
             "working_folder": "/srv", "program": program, "hosts": named}  # fmt: skip
    image = "registry.example/image:1" if fields.get("launcher") == "kubernetes" else None
    filled = FILLED.get(fields.get("target", "deepspeed"), ())
    return JobLaunch(**{"image": image, "filled": filled, **known, **fields})


def read_back(script: Path, *words: str, environment: dict[str, str] | None = None) -> list[str]:
    """What a bash script printed, NUL behind each word."""
    done = subprocess.run(["bash", str(script), *words], capture_output=True, check=False, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode("utf-8").split("\0")[:-1]
