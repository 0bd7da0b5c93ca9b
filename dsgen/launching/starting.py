"""run.sh: the command of a launcher that a person starts: deepspeed, torchrun or accelerate."""

from __future__ import annotations

from collections.abc import Callable

from dsgen.launching.launches import CONFIG, JobLaunch
from dsgen.launching.quoting import array, comment, plain_path, quoted
from dsgen.launching.rank_script import RANK_SCRIPT
from dsgen.launching.trainer_programs import guard

__all__ = ["HOSTFILE", "RESTARTS", "RUN_SCRIPT", "run_script"]

RUN_SCRIPT, HOSTFILE = "run.sh", "hostfile"
RESTARTS = 3  # times that torchrun starts the ranks again before it gives up
_JOIN_SECONDS = 1800  # that hosts which are there wait for one that restarts; a server's firmware takes minutes
_PDSH = "DeepSpeed's launcher hands it to the shells of other hosts without quoting"
# torch 2.13: distributed/elastic/rendezvous/dynamic_rendezvous.py makes one store and keeps it, and
# distributed/rendezvous.py puts no prefix before the keys of an attempt: a rank reads where another one was before.
_OWN_STORE = (
    "torchrun: each start of the ranks gets a store of its own. In the shared one ranks that are started again may "
    "read the addresses of those that died, and cannot connect."
)
_HINTS = {
    "deepspeed": "pip install deepspeed",
    "torchrun": "pip install torch",
    "accelerate": "pip install accelerate",
    "pdsh": "apt-get install pdsh; deepspeed starts the other hosts with it",
    "numactl": "apt-get install numactl; deepspeed --bind_cores_to_rank runs it",
}


def run_script(launch: JobLaunch) -> str:
    """The text of run.sh.

    Raises:
        DsgenError: DeepSpeed's launcher on several hosts, and a folder that it would not quote.
    """
    commands: dict[str, Callable[[JobLaunch], tuple[list[str], list[str]]]] = {
        "deepspeed": _deepspeed, "torchrun": _torchrun, "accelerate": _accelerate,
    }  # fmt: skip
    tools, words = commands[launch.launcher](launch)
    several = launch.job.nodes > 1
    lines = ["#!/usr/bin/env bash", comment(_head(launch)), "set -euo pipefail", f"folder={quoted(launch.folder)}"]
    lines += [
        f'command -v {tool} >/dev/null || {{ echo "no {tool} on PATH: {_HINTS[tool]}" >&2; exit 127; }}'
        for tool in tools
    ]
    lines += guard(launch)
    lines.append('python="$(command -v python3 || command -v python)"')
    if launch.launcher == "torchrun" or (launch.launcher == "accelerate" and several):
        lines += [comment(_OWN_STORE), "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"]
    if launch.launcher == "deepspeed" and several:
        lines.append('cd "$folder"  # the launcher goes to the same folder on every host')
    if launch.launcher == "accelerate" and several:
        names = " ".join(quoted(host.name) for host in launch.hosts)
        lines += [
            f"hosts=({names})",
            'machine="${1:-}"',
            f'if ! [[ "$machine" =~ ^[0-9]+$ && "$machine" -lt {launch.job.nodes} ]]; then',
            f'  echo "usage: bash run.sh N, with N the number of this host, 0 to {launch.job.nodes - 1}:" >&2',
            '  for number in "${!hosts[@]}"; do echo "  $number ${hosts[$number]}" >&2; done',
            "  exit 2",
            "fi",
        ]
    lines += [array("command", words), 'exec "${command[@]}"']
    return "\n".join(lines) + "\n"


def _head(launch: JobLaunch) -> str:
    job = launch.job
    ranks = f"{job.nodes} x {job.gpus_per_node} ranks" if job.nodes > 1 else f"{job.world} ranks"
    if job.world == 1:
        ranks = "1 rank"
    where = ""
    if job.nodes > 1:
        where = " Start it on the first host." if launch.launcher == "deepspeed" else " Start it on every host."
    return f"Starts {ranks} with {launch.launcher}.{where} Another interpreter: put it first on PATH."


def _ranks() -> list[str]:
    return ["bash", f'"$folder/{RANK_SCRIPT}"', '"$python"']


def _deepspeed(launch: JobLaunch) -> tuple[list[str], list[str]]:
    """The ranks are bash, with --no_python, so that what they are given is quoted by us, and alike on every host."""
    job, words, tools = launch.job, ["deepspeed"], ["deepspeed"]
    if job.nodes > 1:
        plain_path(launch.folder, _PDSH)
        words += [f'--hostfile "$folder/{HOSTFILE}"', f"--master_addr {quoted(launch.hosts[0].name)}"]
        tools.append("pdsh")
    else:
        words.append(f"--num_gpus {job.gpus_per_node}")
        if launch.offloads:  # on several hosts pdsh's command leaves the option out (launcher/multinode_runner.py)
            words.append("--bind_cores_to_rank")
            tools.append("numactl")
    words += [f"--master_port {launch.port}", "--no_python", "--no_local_rank", *_ranks()]
    return tools, words


def _torchrun(launch: JobLaunch) -> tuple[list[str], list[str]]:
    """A rendezvous over c10d: a host that comes back joins it, and no host needs a number of its own."""
    job = launch.job
    words = ["torchrun", f"--nnodes {job.nodes}", f"--nproc-per-node {job.gpus_per_node}"]
    if job.nodes > 1:
        words += [
            "--rdzv-backend c10d",
            f"--rdzv-endpoint {quoted(f'{launch.hosts[0].name}:{launch.port}')}",
            f"--rdzv-id {quoted(launch.name)}",
            f"--rdzv-conf join_timeout={_JOIN_SECONDS}",
        ]
    else:
        words += ["--rdzv-backend c10d", f"--rdzv-endpoint localhost:{launch.port}"]
    words += [f"--max-restarts {RESTARTS}", "--no-python", *_ranks()]
    return ["torchrun"], words


def _accelerate(launch: JobLaunch) -> tuple[list[str], list[str]]:
    job, strategy = launch.job, launch.plan.chosen.strategy
    # For every target: without --use_deepspeed a run on the CPU is one process (accelerate 1.15, launch.py).
    words = ["accelerate", "launch", "--use_deepspeed", f'--deepspeed_config_file "$folder/{CONFIG}"']
    words.append(f"--zero3_init_flag {'true' if strategy.stage == 3 else 'false'}")
    words += [f"--num_machines {job.nodes}", f"--num_processes {job.world}"]
    if job.nodes > 1:
        words += [
            '--machine_rank "$machine"',
            f"--main_process_ip {quoted(launch.hosts[0].name)}",
            "--rdzv_backend c10d",
            "--deepspeed_multinode_launcher standard",
        ]
    words += [f"--main_process_port {launch.port}", f"--max_restarts {RESTARTS}", "--no_python", *_ranks()]
    return ["accelerate"], words
