"""What replicas and tensor-parallel ranks exchange in one optimizer step, each over the slowest link it crosses."""

import functools
from typing import NamedTuple

from dsgen.cost.micro_batches import node_rates
from dsgen.jobs.job import Job
from dsgen.kernels import Rates, collective_seconds, contention
from dsgen.memory.modules import Modules, modules
from dsgen.memory.numbers import Numbers
from dsgen.shapes.profiles import Hardware, Model, Network, Training
from dsgen.strategies.buffers import Buffers
from dsgen.strategies.strategies import Strategy

__all__ = ["NO_COLLECTIVES", "Collectives", "collectives", "tensor_parallel_seconds"]


class Collectives(NamedTuple):
    """What ZeRO moves between replicas, in seconds.

    Attributes:
        gather: All parameters gathered once (stage 3).
        reduce: All gradients reduced once; in every pass from stage 2 on, else in the last one.
        update: After the step: updated parameters (stages 1 and 2).
        gathers: Calls of the first, which the host issues.
        reduces: Calls of the second.
        slows: How much longer kernels take beside the reductions, by their own time.
        again: Share of a block's parameters that backward gathers once more than the second forward before it.
        kept: Share of all parameters that is still there from forward when backward comes, without a second forward.
    """

    gather: float
    reduce: float
    update: float
    gathers: int
    reduces: int
    slows: float = 0.0
    again: float = 1.0
    kept: float = 0.0

    def passed(self, forward: bool, again: bool) -> float:
        """How often a pass gathers the parameters of its part."""
        if forward:
            return 1.0
        return 1.0 + self.again if again else 1.0 - self.kept


NO_COLLECTIVES = Collectives(0.0, 0.0, 0.0, 0, 0)


def collectives(job: Job, strategy: Strategy, numbers: Numbers) -> Collectives:
    """What a strategy's replicas move."""
    if job.world == strategy.tp:
        return NO_COLLECTIVES
    ways = (strategy.stage, strategy.tp, strategy.precision, strategy.buffers)
    return _collectives(
        job.model, job.hardware, job.network, job.training, job.world, job.gpus_per_node, *ways, numbers
    )


@functools.lru_cache(maxsize=4096)
def _collectives(
    model: Model,
    hardware: Hardware,
    network: Network,
    training: Training,
    world: int,
    gpus_per_node: int,
    stage: int,
    tp: int,
    precision: str,
    buffers: Buffers,
    numbers: Numbers,
) -> Collectives:
    rates, replicas = node_rates(hardware, network), world // tp
    size = 4 if precision == "fp32" else 2
    gradients = size * numbers.trained
    inside = max(1, gpus_per_node // tp)

    def spent(kind: str, total: int, calls: int) -> float:
        return calls * collective_seconds(rates, kind, total / max(calls, 1), replicas, inside, groups_per_node=tp)

    reduces = max(1, -(-numbers.trained // max(buffers.reduce_bucket, 1)))
    if stage == 0:
        return Collectives(0.0, spent("all_reduce", gradients, reduces), 0.0, 0, reduces)
    reduce = spent("reduce_scatter", gradients, reduces)
    if stage < 3:
        calls = max(1, -(-numbers.trained // max(buffers.allgather_bucket, 1)))
        slows = contention(rates, "reduce_scatter", replicas, inside, groups_per_node=tp)
        return Collectives(0.0, reduce, spent("all_gather", gradients, calls), 0, reduces, slows)
    trains = (training.method, training.lora_rank, training.lora_targets, tp, training.lora_train_embeddings)
    fetched = _fetches(modules(model, *trains, False, False), buffers.persistence, buffers.prefetch)
    gather = 0.0
    for elements, calls in fetched:
        gather += spent("all_gather", size * elements * calls, calls)
    # A tensor of a block that runs again is used again after what lies between it and the block's end, twice.
    return Collectives(
        gather,
        reduce,
        0.0,
        sum(calls for _, calls in fetched),
        reduces,
        again=1.0 - min(1.0, buffers.max_reuse / (2 * numbers.block)),
        kept=min(1.0, buffers.max_reuse / (2 * numbers.total)),
    )


@functools.lru_cache(maxsize=256)
def _fetches(running: Modules, persistence: int, prefetch: int) -> tuple[tuple[int, int], ...]:
    """All-gathers of one way through the model: (elements, how often).

    Tensors are fetched in the order of use; one call takes as many as fill the bucket of what is fetched ahead, or
    those of one module where nothing is (partitioned_param_coordinator.py, fetch_sub_module).
    """
    calls: dict[int, int] = {}
    waiting = 0
    for _, part in running.parts:
        for module in part:
            own = 0
            for tensor in module.tensors:
                if tensor.numel > persistence:
                    own += tensor.extent(False)
                    waiting += tensor.extent(False)
                    if prefetch and waiting >= prefetch:
                        calls[waiting] = calls.get(waiting, 0) + 1
                        waiting = 0
            if not prefetch and own:
                calls[own] = calls.get(own, 0) + 1
                waiting = 0
    if waiting:
        calls[waiting] = calls.get(waiting, 0) + 1
    return tuple(calls.items())


def tensor_parallel_seconds(job: Job, strategy: Strategy, rates: Rates) -> float:
    """AutoTP's all-reduces of one micro-batch: two per block forward, two backward, two more when recomputed."""
    if strategy.tp == 1:
        return 0.0
    size = 4 if strategy.precision == "fp32" else 2
    moved = size * strategy.micro_batch * job.seq_len * job.model.hidden_size
    count = job.model.layers * (6 if strategy.checkpointing else 4)
    return count * collective_seconds(rates, "all_reduce", moved, strategy.tp, min(strategy.tp, job.gpus_per_node))
