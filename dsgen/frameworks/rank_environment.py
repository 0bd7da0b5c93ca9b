"""The environment of every rank, whoever starts it: only variables that something reads, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from dsgen.memory import expandable
from dsgen.planning.planner import Plan
from dsgen.shapes.makers import maker_of

__all__ = ["EnvironmentVariable", "job_variables", "rank_cores"]

# Minutes; the first collective waits for the slowest rank, which may still load a model or build an operator.
# DeepSpeed's own default is 10 (deepspeed 0.19.8, deepspeed/constants.py).
_TIMEOUT_MINUTES = 30
# Programs whose process group takes DeepSpeed's default timeout. The Trainer gives its own (ddp_timeout, 1800 s),
# Lightning torch's (transformers 5.23.0, training_args.py; lightning, strategies/deepspeed.py).
_DEEPSPEED_TIMEOUT = ("deepspeed", "accelerate")


@attrs.frozen
class EnvironmentVariable:
    """One variable: its name, its value, who reads it, why it has this value, and what happens without it."""

    name: str
    value: str
    reader: str
    reason: str
    otherwise: str = ""
    in_folder: bool = False  # the value is a path below the folder of the run


def job_variables(plan: Plan, target: str) -> tuple[EnvironmentVariable, ...]:
    """The variables of every rank of a plan.

    Args:
        plan: The plan.
        target: Who hands the config to DeepSpeed.
    """
    return (*_memory(plan), *_communication(plan, target), *_threads(plan), *_on_cpu(plan))


def rank_cores(plan: Plan) -> int:
    """Cores of each rank: its share of a node's."""
    return max(1, plan.job.hardware.cpu_cores // plan.job.gpus_per_node)


def _memory(plan: Plan) -> Iterator[EnvironmentVariable]:
    if expandable(plan.job):
        # The name that torch from 2.0 to 2.13 reads; PYTORCH_ALLOC_CONF is new (c10/core/AllocatorConfig.h).
        yield EnvironmentVariable(
            "PYTORCH_CUDA_ALLOC_CONF",
            "expandable_segments:True",
            "torch's allocator",
            "segments grow instead of leaving holes between them: a run goes through in 1.01 times its tensors, and "
            "without in 1.11 (medians of docs/reserved.md)",
            "holes between segments take 11 % of the tensors in the median, and a plan that fits may run out",
        )


def _communication(plan: Plan, target: str) -> Iterator[EnvironmentVariable]:
    job = plan.job
    if job.world > 1 and target in _DEEPSPEED_TIMEOUT:
        yield EnvironmentVariable(
            "DEEPSPEED_TIMEOUT",
            str(_TIMEOUT_MINUTES),
            "DeepSpeed, in minutes",
            "the first collective waits for the slowest rank to load; the default is 10, and NCCL_TIMEOUT, which many "
            "scripts set, is read by nothing",
            "ranks wait 10 minutes for one that loads",
        )
    if job.world > 1 and job.hardware.vendor in ("nvidia", "amd"):
        yield EnvironmentVariable(
            "NCCL_DEBUG",
            "WARN",
            maker_of(job.hardware.vendor).collectives,
            "an error of the network is printed with its cause, and nothing else is",
            "an error of the network has no cause",
        )


def _threads(plan: Plan) -> Iterator[EnvironmentVariable]:
    cores, ranks = plan.job.hardware.cpu_cores, plan.job.gpus_per_node
    share = f"{cores} cores shared by {ranks} rank{'s' if ranks > 1 else ''}"
    offloads = plan.chosen.strategy.offload_optimizer != "none"
    why = "Adam on the host runs on them, and its time falls with them" if offloads else "loading runs on them"
    yield EnvironmentVariable(
        "OMP_NUM_THREADS",
        str(rank_cores(plan)),
        "torch and DeepSpeed's CPU Adam",
        f"{share}; {why}. torchrun and accelerate would give a rank 1, others all of them to every rank",
        "a rank has one core, or all of them",
    )


def _on_cpu(plan: Plan) -> Iterator[EnvironmentVariable]:
    if plan.job.hardware.vendor == "cpu":
        yield EnvironmentVariable(
            "LOCAL_SIZE",
            str(plan.job.gpus_per_node),
            "DeepSpeed on the CPU",
            "the ranks of a node; only the deepspeed launcher says it, and without it lscpu is run for it each time",
            "lscpu is run each time",
        )
