"""Who starts the ranks, and what that leaves each of them of the host's cores for Adam."""

from __future__ import annotations

import attrs

from dsgen.jobs.job import Job
from dsgen.kernels.host_work import threads_per_rank
from dsgen.kernels.rates import rates
from dsgen.shapes.layers import Rank
from dsgen.strategies.strategies import Strategy

__all__ = ["best_launcher", "how_to_start", "said_by_a_person", "started_by", "starting_words", "threads_matter"]

_AS = {
    "torchrun": "as torchrun or accelerate starts it",
    "deepspeed": "on any cores, as deepspeed alone starts it",
    "bound": "on cores of its own, as deepspeed --bind_cores_to_rank starts it",
}


def threads_matter(job: Job, strategy: Strategy) -> bool:
    """Whether Adam runs on a host whose cores several ranks share, so that their launcher decides its time."""
    return strategy.offload_optimizer != "none" and job.gpus_per_node > 1


def best_launcher(job: Job) -> str:
    """The launcher with which Adam on the host is fastest: over several nodes pdsh drops the option that binds."""
    return "bound" if job.nodes == 1 else "deepspeed"


def starting_words(job: Job) -> str:
    """What each rank has, in words: `16 threads a rank on cores of its own, as deepspeed ... starts them`."""
    threads = _threads(job)
    return f"{threads} thread{'s' if threads > 1 else ''} a rank {_AS[job.training.launcher]}"


def how_to_start(job: Job) -> str:
    """What a person does for a job's launcher."""
    if job.training.launcher == "bound":
        return "start it with deepspeed --bind_cores_to_rank"
    return f"export OMP_NUM_THREADS={_threads(job)}, or start it as dsgen launch writes it"


def started_by(job: Job, starter: str) -> Job:
    """The job as `dsgen launch --with` starts it, where nobody says its launcher.

    Every rank has OMP_NUM_THREADS of its share; deepspeed on one node and Slurm bind it to cores too.
    """
    if said_by_a_person(job):
        return job
    binds = starter == "slurm" or (starter == "deepspeed" and job.nodes == 1)
    return attrs.evolve(job, training=attrs.evolve(job.training, launcher="bound" if binds else "deepspeed"))


def said_by_a_person(job: Job) -> bool:
    """Whether a person says the launcher themselves, not a default or a profile."""
    winner = job.provenance.winner("training.launcher")
    return winner is not None and winner.rank >= Rank.SITE


def _threads(job: Job) -> int:
    """OpenMP threads of a rank."""
    node = rates(job.hardware, job.network)
    return int(threads_per_rank(node, job.gpus_per_node, job.training.launcher))
