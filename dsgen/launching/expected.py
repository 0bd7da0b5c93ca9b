"""What a run is expected to take and to reach, in numbers: those that its page shows and its thresholds stand on."""

from __future__ import annotations

import attrs

from dsgen.cost import cost
from dsgen.cost.model_flops import utilization
from dsgen.cost.steps import speed_interval
from dsgen.frameworks.saving import save_steps
from dsgen.launching.launches import JobLaunch
from dsgen.memory import Place
from dsgen.memory.conversions import written
from dsgen.planning.launchers import started_by
from dsgen.planning.lengths import schedule

__all__ = ["Expectation", "expect"]


@attrs.frozen(kw_only=True)
class Expectation:
    """What is expected of a run.

    Attributes:
        gpu, host, nvme: Memory, of one GPU and of one node.
        seconds: One optimizer step.
        low_seconds, high_seconds: The least and the most that plausibly takes.
        tokens_per_second_per_gpu: Speed.
        utilization: MFU.
        communication_share: Of a step, what GPUs wait for the network.
        tokens: Of one optimizer step.
        steps: Of the whole run; None where nobody said.
        save_steps: Optimizer steps between checkpoints.
        saved_bytes: What one checkpoint takes on disk, all nodes together; with the weights beside it.
    """

    gpu: Place
    host: Place
    nvme: Place
    seconds: float
    low_seconds: float
    high_seconds: float
    tokens_per_second_per_gpu: float
    utilization: float
    communication_share: float
    tokens: int
    steps: int | None
    save_steps: int
    saved_bytes: int


def expect(launch: JobLaunch) -> Expectation:
    """The numbers of a launch; each rank has the threads of env.sh, on cores of its own where its launcher binds."""
    job, chosen = launch.job, launch.plan.chosen
    started = started_by(job, launch.launcher)
    step = cost(started, chosen.strategy)
    low, high = speed_interval(started, chosen.strategy)
    return Expectation(
        gpu=chosen.memory.gpu,
        host=chosen.memory.host,
        nvme=chosen.memory.nvme,
        seconds=step.seconds,
        low_seconds=step.seconds / high,
        high_seconds=step.seconds / low,
        tokens_per_second_per_gpu=step.tokens_per_second_per_gpu,
        utilization=utilization(job, chosen.strategy, step.seconds),
        communication_share=step.communication_share,
        tokens=step.tokens,
        steps=schedule(job, chosen.strategy).total_steps,
        save_steps=save_steps(step.seconds),
        saved_bytes=sum(written(job, chosen.strategy).values()),
    )
