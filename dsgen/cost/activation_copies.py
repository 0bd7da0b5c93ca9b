"""What it costs that activations wait in the node's RAM: copies that no kernel hides."""

from __future__ import annotations

from collections.abc import Sequence

from dsgen.cost.micro_batches import Pass
from dsgen.cost.sample_lengths import computed_length
from dsgen.jobs.job import Job
from dsgen.jobs.releases import recomputed
from dsgen.kernels import Rates, copy_seconds
from dsgen.memory.runs import Run
from dsgen.memory.together import offloaded
from dsgen.strategies.strategies import Strategy

__all__ = ["copied_seconds"]

_GATHERS = 3  # the stage that gathers parameters


def copied_seconds(job: Job, strategy: Strategy, rates: Rates, order: Sequence[Pass]) -> float:
    """Seconds of one micro-batch in which kernels wait for activations on their way; 0 where none leave the GPU.

    The inputs of blocks leave beside forward's kernels and come back beside backward's. What the loss keeps has no
    kernel behind it: backward waits until it has left; and for all that is kept behind the blocks until it is back.

    Args:
        job, strategy: The job and the strategy.
        rates: The node.
        order: The passes of the micro-batch.
    """
    if not (job.training.activation_offloading and strategy.checkpointing):
        return 0.0
    ways = strategy.precision, strategy.tp, strategy.checkpointing, strategy.stage == _GATHERS
    run = Run(job.model, recomputed(job.training, strategy.stage, job.version), computed_length(job, strategy), *ways)
    seconds, left, back = 0.0, 0.0, 0.0
    for one in offloaded(run):
        size = one.size[0] + one.size[1] * strategy.micro_batch
        there, again = copy_seconds(rates, size, direction="to_host"), copy_seconds(rates, size)
        if one.blocks:
            left, back = one.number * there, one.number * again
        else:
            seconds += (there if one.late else 0.0) + (again if one.returns else 0.0)
    for part in order:
        taken = part.repeats * part.device
        left, back = (left - taken, back) if part.forward else (left, back - taken)
    return seconds + max(0.0, left) + max(0.0, back)
