"""SkyPilot: a task for each node of any cloud, with its files, a bucket for checkpoints, and recovery.

Fields are those of SkyPilot's task (skypilot-org/skypilot, sky/utils/schemas.py at 00052df).
"""

from __future__ import annotations

import re
from typing import Any

import attrs

from dsgen.launching.launches import CHECKPOINTS, JobLaunch, RunFile
from dsgen.launching.quoting import quoted
from dsgen.launching.yaml_text import yaml_text
from dsgen.shapes.errors import mistake

__all__ = ["TASK", "TASK_FOLDER", "on_clouds", "task"]

TASK = "task.yaml"
TASK_FOLDER = "/dsgen/run"  # where the files of the run lie on a node
_RESTARTS = 3  # after errors of the program; what a cloud takes away is always recovered
# Hardware profile -> what SkyPilot calls its accelerator (sky/catalog, and sky/provision/runpod/utils.py).
_ACCELERATORS = {
    "a10-24g": "A10", "a10g-24g": "A10G", "a100-40g": "A100", "a100-40g-pcie": "A100", "a100-80g": "A100-80GB",
    "a100-80g-pcie": "A100-80GB", "a40-48g": "A40", "b200-180g": "B200", "h100-80g": "H100", "h100-80g-pcie": "H100",
    "h200-141g": "H200", "gh200-96g": "GH200", "l4-24g": "L4", "l40s-48g": "L40S", "mi300x-192g": "MI300X",
    "rtx3090-24g": "RTX3090", "rtx4000ada-20g": "RTX4000-Ada", "rtx4080-16g": "RTX4080", "rtx4090-24g": "RTX4090",
    "rtx5090-32g": "RTX5090", "rtx6000ada-48g": "RTX6000-Ada", "rtxa4000-16g": "RTXA4000", "rtxa5000-24g": "RTXA5000",
    "rtxa6000-48g": "RTXA6000", "rtxpro6000-96g": "RTXPRO6000", "t4-16g": "T4", "v100-16g": "V100",
    "v100-32g": "V100-32GB",
}  # fmt: skip


def on_clouds(launch: JobLaunch) -> JobLaunch:
    """The launch as its nodes see it.

    Raises:
        DsgenError: A script outside of the working folder, which is all that is copied there.
    """
    program, here = launch.program, launch.working_folder.rstrip("/")
    if program.script and not program.script.startswith(f"{here}/"):
        raise mistake(
            f"the script {program.script} lies outside of {here}",
            must="SkyPilot copies the working folder",
            where="--script",
            todo="Start dsgen in the folder of the program.",
        )
    inside = program.script.removeprefix(f"{here}/") if program.script else None
    return attrs.evolve(launch, folder=TASK_FOLDER, working_folder=".", program=attrs.evolve(program, script=inside))


def task(launch: JobLaunch, files: tuple[RunFile, ...]) -> RunFile:
    """task.yaml.

    Args:
        launch: The launch, as it was asked for.
        files: What every node needs of the folder.

    Raises:
        DsgenError: Hardware that no cloud has by that name.
    """
    job, name = launch.job, _task_name(launch.name)
    mounts: dict[str, Any] = {f"{TASK_FOLDER}/{file.name}": f"{launch.folder}/{file.name}" for file in files}
    mounts[f"{TASK_FOLDER}/{CHECKPOINTS}"] = {"name": f"{name}-{CHECKPOINTS}", "mode": "MOUNT"}
    told: dict[str, Any] = {
        "name": name,
        "num_nodes": job.nodes,
        "resources": _resources(launch),
        "workdir": launch.working_folder,
        "file_mounts": mounts,
        "run": _run(launch),
    }
    nodes = f"{job.nodes} node{'s' if job.nodes > 1 else ''} x {job.gpus_per_node}"
    return RunFile(TASK, yaml_text(told), f"{nodes} of any cloud, recovers, resumes")


def _task_name(name: str) -> str:
    """A name that tasks and buckets of every cloud take."""
    letters = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:30].strip("-")
    return letters if letters[:1].isalpha() else f"run-{letters}".strip("-")


def _resources(launch: JobLaunch) -> dict[str, Any]:
    hardware = launch.job.names.get("hardware", "")
    wanted: dict[str, Any] = {"memory": f"{-(-int(launch.plan.chosen.memory.host.high_bytes) // 2**30)}+"}
    if launch.has_gpus:
        if hardware not in _ACCELERATORS:
            raise mistake(
                f"SkyPilot has no name for {hardware or 'this hardware'}",
                must=f"the hardware must be one of {', '.join(_ACCELERATORS)}",
                where="--hw",
                todo="Take another launcher, or one of these.",
                code="unknown-name",
            )
        wanted["accelerators"] = {_ACCELERATORS[hardware]: launch.job.gpus_per_node}
    if launch.image:
        wanted["image_id"] = f"docker:{launch.image}"
    wanted["job_recovery"] = {"max_restarts_on_errors": _RESTARTS}
    return wanted


def _run(launch: JobLaunch) -> str:
    """The command of each node; SkyPilot starts it in the working folder, and tells numbers and addresses."""
    job = launch.job
    return (
        'first="$(echo "$SKYPILOT_NODE_IPS" | head -n 1)"\n'
        f'torchrun --nnodes "$SKYPILOT_NUM_NODES" --nproc-per-node {job.gpus_per_node} \\\n'
        f'  --node-rank "$SKYPILOT_NODE_RANK" --master-addr "$first" --master-port {launch.port} \\\n'
        f"  --no-python bash {quoted(TASK_FOLDER)}/rank.sh\n"
    )
