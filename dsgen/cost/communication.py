"""What replicas exchange in one optimizer step, each over the slowest link it crosses."""

import functools
from typing import NamedTuple

from dsgen.cost.micro_batches import node_rates
from dsgen.jobs.job import Job
from dsgen.kernels import collective_seconds, contention
from dsgen.memory.modules import Modules, modules
from dsgen.memory.numbers import Numbers
from dsgen.memory.trained import AFTER
from dsgen.shapes.profiles import Hardware, Model, Network, Training
from dsgen.strategies.buffers import Buffers
from dsgen.strategies.strategies import Strategy

__all__ = ["NO_COLLECTIVES", "Collectives", "collectives"]

SCALED = 6144  # elements that share a scale in fp32, as the quantizer of 0.19.8 divides weights of 4096 by 4608


class Collectives(NamedTuple):
    """What ZeRO moves between replicas, in seconds.

    Attributes:
        gather: All parameters gathered once (stage 3).
        reduce: All gradients reduced once; in every pass from stage 2 on, else in the last one.
        update: After the step: updated parameters (stages 1 and 2), or those that no rank gives away (stage 3).
        gathers: Calls of the first, which the host issues.
        reduces: Calls of the second.
        slows: How much longer kernels take beside the reductions, by their own time.
        again: How often backward gathers all parameters.
        together: Share of the parameters that are gathered several in a call.
    """

    gather: float
    reduce: float
    update: float
    gathers: int
    reduces: int
    slows: float = 0.0
    again: float = 1.0
    together: float = 0.0


NO_COLLECTIVES = Collectives(0.0, 0.0, 0.0, 0, 0)


def collectives(job: Job, strategy: Strategy, numbers: Numbers) -> Collectives:
    """What a strategy's replicas move."""
    if job.world == strategy.tp:
        return NO_COLLECTIVES
    ways = (strategy.stage, strategy.tp, strategy.precision, strategy.buffers, strategy.checkpointing)
    moved = _collectives(
        job.model, job.hardware, job.network, job.training, job.world, job.gpus_per_node, *ways, numbers
    )
    return _in_eight_bits(job, strategy, _with_second_copy(job, strategy, moved, numbers), numbers)


def _in_eight_bits(job: Job, strategy: Strategy, moved: Collectives, numbers: Numbers) -> Collectives:
    """The same with qwZ: every gather is two, of the weights in 8 bits and of their scales.

    The gradients stay as they are; the kernels that make 16 bits of them again are counted in `handling`
    (partition_parameters.py, all_gather_coalesced; csrc/quantization).
    """
    if strategy.stage < 3 or not job.unsure.fetched or not moved.gathers:
        return moved
    rates, replicas = node_rates(job.hardware, job.network), job.world // strategy.tp
    elements = numbers.total / moved.gathers

    def spent(size: float) -> float:
        inside = max(1, job.gpus_per_node // strategy.tp)
        return collective_seconds(rates, "all_gather", size, replicas, inside, groups_per_node=strategy.tp)

    weights = spent((4 if strategy.precision == "fp32" else 2) * elements)
    share = (spent(elements) + spent(4 * elements / SCALED)) / weights
    return moved._replace(gather=moved.gather * share, gathers=2 * moved.gathers)


def _with_second_copy(job: Job, strategy: Strategy, moved: Collectives, numbers: Numbers) -> Collectives:
    """The same with hpZ: only the first gather of a step crosses all ranks, each later one its group alone.

    The copy is made when what was gathered is first released, and given up in the step (partition_parameters.py,
    partition; stage3.py, invalidate_secondary_tensor).
    """
    group, replicas = strategy.buffers.secondary, job.world // strategy.tp
    if strategy.stage < 3 or not 1 < group < replicas or not moved.gathers:
        return moved
    rates = node_rates(job.hardware, job.network)
    size = (4 if strategy.precision == "fp32" else 2) * numbers.total / moved.gathers
    inside = max(1, job.gpus_per_node // strategy.tp)
    all_ranks = collective_seconds(rates, "all_gather", size, replicas, inside, groups_per_node=strategy.tp)
    others = max(1, min(inside, replicas) // group) * strategy.tp
    near = collective_seconds(rates, "all_gather", size, group, min(group, inside), groups_per_node=others) / all_ranks
    forward = near + (1.0 - near) / strategy.accumulation
    return moved._replace(gather=moved.gather * forward, again=moved.again * near / forward)


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
    checkpointing: bool,
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
    if stage < 3:
        # A bucket is summed whole, and each rank takes its part (stage_1_and_2.py, use_multi_rank_bucket_allreduce).
        reduce = spent("all_reduce", gradients, reduces)
        calls = max(1, -(-numbers.trained // max(buffers.allgather_bucket, 1)))
        slows = contention(rates, "all_reduce", replicas, inside, groups_per_node=tp)
        return Collectives(0.0, reduce, spent("all_gather", gradients, calls), 0, reduces, slows)
    trains = (training.method, training.lora_rank, training.lora_targets, tp, training.lora_train_embeddings)
    table = model.vocab_size * (model.embedding_size or model.hidden_size) // tp
    stays = table if model.tied_embeddings and numbers.total - table < buffers.max_reuse else 0
    running = modules(model, *trains, False, False)
    fetched = _fetches(running, buffers.persistence, buffers.prefetch, stays)
    small, elements = _persistent(running, buffers.persistence)
    reduce = spent("reduce_scatter", gradients, reduces)
    gather, all_elements, together = 0.0, 0, 0
    for (elements, tensors), calls in fetched:
        gather += spent("all_gather", size * elements * calls, calls)
        all_elements += elements * calls
        together += elements * calls if tensors > 1 else 0
    gathered = max(all_elements, 1)
    blocks = max(gathered - (table if stays else 2 * table), 1)
    return Collectives(
        gather,
        reduce,
        spent("all_gather", size * elements, small) if small else 0.0,
        sum(calls for _, calls in fetched),
        reduces,
        again=_again(training, checkpointing, gathered, blocks, table, numbers.block, buffers.max_live),
        together=together / gathered,
    )


def _again(
    training: Training, checkpointing: bool, gathered: int, blocks: int, table: int, block: int, max_live: int
) -> float:
    """How often backward gathers all that forward did, as fetching ahead and releasing make it.

    `stage3_max_live_parameters` of them are still there when forward ends. A block that is larger than that is gathered
    once more for its second forward. What peft has frozen is not kept for backward: a block's second forward gathers
    it, and where it does not all stay, its backward once more; without a second forward the embedding is not asked for.
    Within a tenth of what the simulated engine of 0.19.8 gathers, from 0.5 to 500 billion parameters.
    """
    short = max(0, gathered - max_live)
    if training.method == "full":
        second = max(0.0, 1.0 - max_live / max(block, 1)) if checkpointing else 0.0
        return (short + second * blocks) / gathered
    if checkpointing:
        return blocks / gathered * (1.0 + min(1.0, 2 * short / blocks))
    return max(0, short - table) / gathered


@functools.lru_cache(maxsize=256)
def _fetches(running: Modules, persistence: int, prefetch: int, stays: int) -> tuple[tuple[tuple[int, int], int], ...]:
    """All-gathers of one way through the model: (elements, tensors of a call), how often.

    Tensors are fetched in the order of use; one call takes as many as fill the bucket of what is fetched ahead, or
    those of one module where nothing is (partitioned_param_coordinator.py, fetch_sub_module).

    Args:
        running: The modules.
        persistence, prefetch: Of the buffers.
        stays: Elements of an embedding that is the head's too and is still there when it comes; else 0.
    """
    calls: dict[tuple[int, int], int] = {}
    waiting = tensors = 0
    for block, part in running.parts:
        for module in part:
            for tensor in module.tensors:
                if tensor.numel > persistence and not (block == AFTER and tensor.numel == stays):
                    waiting, tensors = waiting + tensor.extent(False), tensors + 1
                    if prefetch and waiting >= prefetch:
                        calls[waiting, tensors] = calls.get((waiting, tensors), 0) + 1
                        waiting = tensors = 0
            if not prefetch and waiting:
                calls[waiting, tensors] = calls.get((waiting, tensors), 0) + 1
                waiting = tensors = 0
    if waiting:
        calls[waiting, tensors] = calls.get((waiting, tensors), 0) + 1
    return tuple(calls.items())


@functools.lru_cache(maxsize=256)
def _persistent(running: Modules, persistence: int) -> tuple[int, int]:
    """Trained tensors that every rank keeps whole, and their elements: each is gathered after the step by itself."""
    sizes = {
        tensor.place: tensor.numel
        for _, part in running.parts
        for module in part
        for tensor in module.tensors
        if tensor.numel <= persistence and not tensor.frozen
    }
    return len(sizes), sum(sizes.values())
