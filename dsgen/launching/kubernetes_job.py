"""Kubernetes: the files of a run in a ConfigMap, checkpoints on a claim, and what starts a pod for each node.

Fields are those of jobset.x-k8s.io/v1alpha2 (kubernetes-sigs/jobset, 08dfbdf of 2026-08-18) and of
trainer.kubeflow.org/v1alpha1 (kubeflow/trainer, 8c0f505 of 2026-08-21).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from dsgen.families.parameters import parameter_count
from dsgen.frameworks.saving import KEPT
from dsgen.launching.launches import CHECKPOINTS, JobLaunch, RunFile
from dsgen.launching.yaml_text import yaml_text
from dsgen.shapes.errors import mistake

__all__ = ["JOBSET", "POD_FOLDER", "TRAINJOB", "in_pods", "manifests"]

JOBSET, TRAINJOB = "jobset.yaml", "trainjob.yaml"
POD_FOLDER = "/dsgen/run"  # where the files of the run lie in a pod
_RESTARTS = 3  # of all pods together, each from the last checkpoint
_NODE = "node"  # the name of the pods' job in both; Kubeflow's torch runtime calls its trainer's container so too
_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "intel": "habana.ai/gaudi"}  # of the makers' plugins
_LONGEST_NAME = 40  # letters, so that the names of pods stay below the 63 of a DNS label
_GIB = 2**30
# A parameter in a checkpoint of Adam: 2 bytes of the model, 12 of fp32 weights and both moments; beside those that are
# kept one more is written.
_CHECKPOINT_BYTES = 14 * (KEPT + 1)


def in_pods(launch: JobLaunch) -> JobLaunch:
    """The launch as its pods see it: the folder there, and the program of the image.

    Raises:
        DsgenError: No image is named.
    """
    script = launch.program.script
    if launch.image is None:
        raise mistake("no image is named", must="pods run one", todo="Say --image, one with torch, deepspeed and the "
                      "program.", code="missing")  # fmt: skip
    folder = posixpath.dirname(script) if script else "."
    return attrs.evolve(launch, folder=POD_FOLDER, working_folder=folder)


def manifests(launch: JobLaunch, run: str, files: Sequence[RunFile]) -> tuple[RunFile, RunFile]:
    """jobset.yaml and trainjob.yaml.

    Args:
        launch: The launch, as its pods see it.
        run: Its name.
        files: What every pod needs of its folder.
    """
    name = _dns_name(run)
    shared = [_config_map(name, files), _claim(launch, name)]
    jobset = yaml_documents([*shared, _jobset(launch, name, files)])
    trainjob = yaml_documents([*shared, *_trainjob(launch, name, files)])
    nodes = f"{launch.job.nodes} pod{'s' if launch.job.nodes > 1 else ''} x {launch.job.gpus_per_node}"
    return (
        RunFile(JOBSET, jobset, f"for JobSet: {nodes}, restarts, resumes"),
        RunFile(TRAINJOB, trainjob, "the same for Kubeflow Trainer, which makes the JobSet itself"),
    )


def yaml_documents(documents: Sequence[Mapping[str, Any]]) -> str:
    """Several documents in one file."""
    return "---\n".join(map(yaml_text, documents))


def _dns_name(name: str) -> str:
    """A name as Kubernetes takes it."""
    letters = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_LONGEST_NAME].strip("-")
    return letters if letters[:1].isalpha() else f"run-{letters}".strip("-")


def _config_map(name: str, files: Sequence[RunFile]) -> dict[str, Any]:
    data = {file.name: file.text for file in files}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _claim(launch: JobLaunch, name: str) -> dict[str, Any]:
    size = -(-parameter_count(launch.job.model) * _CHECKPOINT_BYTES // _GIB) + 1
    mode = "ReadWriteMany" if launch.job.nodes > 1 else "ReadWriteOnce"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"{name}-{CHECKPOINTS}"},
        "spec": {"accessModes": [mode], "resources": {"requests": {"storage": f"{size}Gi"}}},
    }


def _jobset(launch: JobLaunch, name: str, files: Sequence[RunFile]) -> dict[str, Any]:
    job = launch.job
    # A pod is called by its JobSet, its job, that job's number and its own; its domain is the JobSet's name.
    command = (
        f"exec torchrun --nnodes {job.nodes} --nproc-per-node {job.gpus_per_node} "
        f'--node-rank "$JOB_COMPLETION_INDEX" --master-addr {name}-{_NODE}-0-0.{name} --master-port {launch.port} '
        f"--no-python bash {POD_FOLDER}/rank.sh"
    )
    container = {"name": _NODE, "image": launch.image, "command": ["bash", "-c", command], **_container(launch, files)}
    pods = {"parallelism": job.nodes, "completions": job.nodes, "completionMode": "Indexed", "backoffLimit": 0}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": _RESTARTS},
            "replicatedJobs": [
                {
                    "name": _NODE,
                    "replicas": 1,
                    "template": {"spec": {**pods, "template": _pod(launch, name, container)}},
                }
            ],
        },
    }


def _trainjob(launch: JobLaunch, name: str, files: Sequence[RunFile]) -> list[dict[str, Any]]:
    """A runtime of its own, which says the volumes, and the TrainJob; torchrun is told the rest by PET_ variables."""
    job = launch.job
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    container = {"name": _NODE, "image": launch.image, **_container(launch, files)}
    template = {"metadata": {"labels": step}, "spec": {"backoffLimit": 0, "template": _pod(launch, name, container)}}
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {
            "mlPolicy": {"numNodes": job.nodes, "torch": {}},
            "template": {
                "spec": {
                    "failurePolicy": {"maxRestarts": _RESTARTS},
                    "replicatedJobs": [{"name": _NODE, "template": template}],
                }
            },
        },
    }
    trainer = {
        "image": launch.image,
        "command": ["torchrun", "--no-python", "bash", f"{POD_FOLDER}/rank.sh"],
        "numNodes": job.nodes,
        "numProcPerNode": job.gpus_per_node,
        "resourcesPerNode": _resources(launch),
    }
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": name}
    return [
        runtime,
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": name},
            "spec": {"runtimeRef": reference, "trainer": trainer},
        },
    ]


def _pod(launch: JobLaunch, name: str, container: Mapping[str, Any]) -> dict[str, Any]:
    volumes = [
        {"name": "run", "configMap": {"name": name}},
        {"name": CHECKPOINTS, "persistentVolumeClaim": {"claimName": f"{name}-{CHECKPOINTS}"}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    return {"spec": {"restartPolicy": "Never", "containers": [container], "volumes": volumes}}


def _container(launch: JobLaunch, files: Sequence[RunFile]) -> dict[str, Any]:
    """What both kinds of container have; each file is mounted alone, so that checkpoints may lie beside them."""
    mounts = [{"name": "run", "mountPath": f"{POD_FOLDER}/{file.name}", "subPath": file.name} for file in files]
    mounts.append({"name": CHECKPOINTS, "mountPath": f"{POD_FOLDER}/{CHECKPOINTS}"})
    mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # of ranks of one pod; Kubernetes gives 64 MiB
    return {"resources": _resources(launch), "volumeMounts": mounts}


def _resources(launch: JobLaunch) -> dict[str, Any]:
    """GPUs, cores and RAM of a node's part; of RAM no limit, for the program's own workers are not planned."""
    job = launch.job
    wanted: dict[str, Any] = {
        "cpu": str(launch.cores * job.gpus_per_node),
        "memory": f"{-(-int(launch.plan.chosen.memory.host.high_bytes) // _GIB)}Gi",
    }
    if launch.has_gpus:
        kind = _RESOURCES.get(job.hardware.vendor)
        if kind is None:
            raise mistake(
                f"a GPU of vendor {job.hardware.vendor} has no name in Kubernetes",
                must=f"the vendor must be one of {', '.join(_RESOURCES)}",
                todo="Say --hw, or --set hardware.vendor=nvidia.",
            )
        return {"requests": wanted, "limits": {kind: str(job.gpus_per_node)}}
    return {"requests": wanted}
