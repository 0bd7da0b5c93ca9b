"""What a step takes of a strategy whatever its batch is, computed once for all batches of a layout."""

import functools
from typing import NamedTuple

from dsgen.cost.communication import reductions
from dsgen.cost.handling import GATHERS, Dispatches, dispatches
from dsgen.cost.micro_batches import node_rates, numbers_of, passes
from dsgen.cost.offload import host_step_seconds
from dsgen.cost.optimizer_step import Stepped, stepped
from dsgen.cost.queued_passes import PartShares, shares_of
from dsgen.jobs.job import Job
from dsgen.kernels import Rates
from dsgen.memory.filled_buckets import Buckets
from dsgen.memory.numbers import Numbers
from dsgen.strategies.strategies import Strategy

__all__ = ["CostKey", "LayoutWork", "layout_work"]


class CostKey:
    """A job and a strategy, equal to others whose facts an answer depends on are the same."""

    __slots__ = ("deepspeed", "facts", "job", "of_job", "strategy")

    def __init__(
        self, job: Job, strategy: Strategy, deepspeed: bool, of_job: tuple[object, ...], *facts: object
    ) -> None:
        """Of what is asked.

        Args:
            job: The job.
            strategy: The strategy.
            deepspeed: As of `dsgen.cost.cost`.
            of_job: The facts of the job.
            facts: What besides these and `deepspeed` the answer depends on.
        """
        self.job, self.strategy, self.deepspeed, self.of_job = job, strategy, deepspeed, of_job
        self.facts = (deepspeed, of_job, *facts)

    def __hash__(self) -> int:
        return hash(self.facts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CostKey) and self.facts == other.facts


class LayoutWork(NamedTuple):
    """What all batches of a layout have in common.

    Attributes:
        numbers: Elements of one tensor-parallel rank.
        rates: The node and its network.
        buckets: In which the gradients of a pass are reduced.
        overlaps: Whether they are reduced beside backward, on a stream of their own, at stages 1 and 2.
        shares: What each part of the model has of parameters and gradients.
        host: What the host takes for gradients.
        step: The optimizer's, on the GPU.
        host_step: Seconds of the one on the CPU.
    """

    numbers: Numbers
    rates: Rates
    buckets: Buckets
    overlaps: bool
    shares: PartShares
    host: Dispatches
    step: Stepped
    host_step: float


def layout_work(asked: CostKey) -> LayoutWork:
    """What the step of an asked strategy has in common with other batches of its layout."""
    one = asked.strategy
    layout = (one.stage, one.offload_optimizer, one.offload_param, one.tp, one.checkpointing, one.precision)
    # A batch whose padding reaches a window runs the blocks that have one apart from the others.
    parts = tuple(part.repeats for part in passes(asked.job, one).order)
    return _layout_work(CostKey(asked.job, one, asked.deepspeed, asked.of_job, layout, one.buffers, parts))


@functools.lru_cache(maxsize=1024)
def _layout_work(asked: CostKey) -> LayoutWork:
    job, strategy, training = asked.job, asked.strategy, asked.job.training
    rates, numbers = node_rates(job.hardware, job.network), numbers_of(job, strategy)
    buckets = reductions(job, strategy)
    overlaps = 0 < strategy.stage < GATHERS and strategy.buffers.overlap_comm
    late = buckets.late_share if overlaps or strategy.stage == GATHERS else 0.0
    # What comes last is behind everything.
    apart = overlaps or (strategy.stage == GATHERS and strategy.offload_optimizer != "none")
    adapters = training.method != "full" and not training.lora_train_embeddings
    order = passes(job, strategy).order  # whose parts are among what is asked
    bucket = strategy.buffers.reduce_bucket
    shares = shares_of(order, numbers, job.model, adapters, late if apart else None, bucket)
    own = numbers.trained / (job.world // strategy.tp if strategy.stage else 1)
    step = stepped(job, strategy, rates, int(own), deepspeed=asked.deepspeed)
    host = dispatches(job, strategy, rates)
    host_step = host_step_seconds(job, strategy, rates, numbers)
    return LayoutWork(numbers, rates, buckets, overlaps, shares, host, step, host_step)
