"""The environment of the ranks: only variables that something reads, each with who reads it and why."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from dsgen.launching.launches import CONFIG, JobLaunch
from dsgen.launching.quoting import comment, quoted

__all__ = ["EnvironmentVariable", "environment", "environment_text"]

# Minutes; the first collective waits for the slowest rank, which may still load a model or build an operator.
# DeepSpeed's own default is 10 (deepspeed 0.19.8, deepspeed/constants.py).
_TIMEOUT_MINUTES = 30
# Programs whose process group takes DeepSpeed's default timeout. The Trainer gives its own (ddp_timeout, 1800 s),
# Lightning torch's (transformers 5.23.0, training_args.py; lightning, strategies/deepspeed.py).
_DEEPSPEED_TIMEOUT = ("deepspeed", "accelerate")


@attrs.frozen
class EnvironmentVariable:
    """One variable: its name, its value, who reads it, and why it has this value."""

    name: str
    value: str
    reader: str
    reason: str
    in_folder: bool = False  # the value is a path below the folder of the run


def environment(launch: JobLaunch) -> tuple[EnvironmentVariable, ...]:
    """The variables of a launch, those of every rank."""
    return (*_memory(launch), *_communication(launch), *_threads(launch), *_on_cpu(launch), *_of_target(launch))


def _memory(launch: JobLaunch) -> Iterator[EnvironmentVariable]:
    if launch.job.hardware.vendor == "nvidia":
        # The name that torch from 2.0 to 2.13 reads; PYTORCH_ALLOC_CONF is new (c10/core/AllocatorConfig.h).
        yield EnvironmentVariable(
            "PYTORCH_CUDA_ALLOC_CONF",
            "expandable_segments:True",
            "torch's allocator",
            "segments grow instead of leaving holes between them, so that less is reserved than the tensors need",
        )


def _communication(launch: JobLaunch) -> Iterator[EnvironmentVariable]:
    job = launch.job
    if job.world > 1 and launch.target in _DEEPSPEED_TIMEOUT:
        yield EnvironmentVariable(
            "DEEPSPEED_TIMEOUT",
            str(_TIMEOUT_MINUTES),
            "DeepSpeed, in minutes",
            "the first collective waits for the slowest rank to load; the default is 10, and NCCL_TIMEOUT, which many "
            "scripts set, is read by nothing",
        )
    if job.world > 1 and job.hardware.vendor in ("nvidia", "amd"):
        yield EnvironmentVariable(
            "NCCL_DEBUG", "WARN", "NCCL", "an error of the network is printed with its cause, and nothing else is"
        )
    if job.nodes > 1 and launch.interface:
        if launch.has_gpus:
            yield EnvironmentVariable(
                "NCCL_SOCKET_IFNAME",
                f"={launch.interface}",
                "NCCL",
                "the interface on which ranks of different hosts meet; '=' means this name and none that begins so",
            )
        yield EnvironmentVariable(
            "GLOO_SOCKET_IFNAME",
            launch.interface,
            "torch's gloo",
            "the same for groups on the CPU; without it gloo takes what the host's own name leads to, often 127.0.0.1",
        )


def _threads(launch: JobLaunch) -> Iterator[EnvironmentVariable]:
    cores, ranks = launch.job.hardware.cpu_cores, launch.job.gpus_per_node
    share = f"{cores} cores shared by {ranks} rank{'s' if ranks > 1 else ''}"
    why = "Adam on the host runs on them, and its time falls with them" if launch.offloads else "loading runs on them"
    yield EnvironmentVariable(
        "OMP_NUM_THREADS",
        str(launch.cores),
        "torch and DeepSpeed's CPU Adam",
        f"{share}; {why}. torchrun and accelerate would give a rank 1, others all of them to every rank",
    )


def _on_cpu(launch: JobLaunch) -> Iterator[EnvironmentVariable]:
    if not launch.has_gpus:
        yield EnvironmentVariable(
            "LOCAL_SIZE",
            str(launch.job.gpus_per_node),
            "DeepSpeed on the CPU",
            "the ranks of a node; only the deepspeed launcher says it, and without it lscpu is run for it each time",
        )


def _of_target(launch: JobLaunch) -> Iterator[EnvironmentVariable]:
    if launch.target == "accelerate" and launch.launcher != "accelerate":
        yield EnvironmentVariable(
            "ACCELERATE_USE_DEEPSPEED",
            "true",
            "Accelerate",
            "accelerate launch would set it: Accelerator() makes a DeepSpeed engine",
        )
        yield EnvironmentVariable(
            "ACCELERATE_DEEPSPEED_CONFIG_FILE",
            CONFIG,
            "Accelerate",
            "the config that Accelerator() hands to DeepSpeed",
            in_folder=True,
        )
    if launch.target == "lightning":
        yield EnvironmentVariable(
            "PL_DEEPSPEED_CONFIG_PATH",
            CONFIG,
            "Lightning's DeepSpeedStrategy",
            "the config of DeepSpeedStrategy() without config=",
            in_folder=True,
        )


def environment_text(launch: JobLaunch) -> str:
    """env.sh: every variable with its reason above it."""
    lines = [
        comment("The environment of every rank; rank.sh reads it. Only what something reads, each with its reason."),
    ]
    for one in environment(launch):
        value = f'"$folder"/{quoted(one.value)}' if one.in_folder else quoted(one.value)
        lines += ["", comment(f"{one.reader}: {one.reason}."), f"export {one.name}={value}"]
    if launch.job.nodes > 1 and not launch.interface:
        lines += [
            "",
            comment(
                "NCCL_SOCKET_IFNAME is not set: NCCL takes the first interface that is neither lo nor docker. "
                "Where ranks do not meet, see `ip -brief address` and write: dsgen launch --interface NAME"
            ),
        ]
    return "\n".join(lines) + "\n"
