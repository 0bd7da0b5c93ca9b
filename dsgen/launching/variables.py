"""The environment of the ranks: only variables that something reads, each with who reads it and why."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.frameworks.rank_environment import EnvironmentVariable, job_variables
from dsgen.launching.launches import CONFIG, JobLaunch
from dsgen.launching.quoting import comment, quoted
from dsgen.shapes.makers import maker_of

__all__ = ["environment", "environment_text"]


def environment(launch: JobLaunch) -> tuple[EnvironmentVariable, ...]:
    """The variables of a launch, those of every rank."""
    return (*job_variables(launch.plan, launch.target), *_interface(launch), *_of_target(launch))


def _interface(launch: JobLaunch) -> Iterator[EnvironmentVariable]:
    if launch.job.nodes > 1 and launch.interface:
        if launch.has_gpus:
            yield EnvironmentVariable(
                "NCCL_SOCKET_IFNAME",
                f"={launch.interface}",
                maker_of(launch.job.hardware.vendor).collectives,
                "the interface on which ranks of different hosts meet; '=' means this name and none that begins so",
            )
        yield EnvironmentVariable(
            "GLOO_SOCKET_IFNAME",
            launch.interface,
            "torch's gloo",
            "the same for groups on the CPU; without it gloo takes what the host's own name leads to, often 127.0.0.1",
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
        library = maker_of(launch.job.hardware.vendor).collectives
        lines += [
            "",
            comment(
                f"NCCL_SOCKET_IFNAME is not set: {library} takes the first interface that is neither lo nor docker. "
                "Where ranks do not meet, see `ip -brief address` and write: dsgen launch --interface NAME"
            ),
        ]
    return "\n".join(lines) + "\n"
