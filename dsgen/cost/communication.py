"""What replicas exchange in one optimizer step, each over the slowest link it crosses."""

import functools
import heapq
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from dsgen.cost.micro_batches import node_rates
from dsgen.jobs.job import Job
from dsgen.jobs.releases import must_reenter, recomputed
from dsgen.kernels import collective_lines, contention
from dsgen.memory.buckets import flat_chunks
from dsgen.memory.filled_buckets import Buckets, filled_buckets
from dsgen.memory.gathers import Rows, gathers, persistent_tensors
from dsgen.memory.numbers import count
from dsgen.memory.runs import Run
from dsgen.memory.together import runs_of
from dsgen.memory.trained import Trained, trained
from dsgen.shapes.profiles import Hardware, Model, Network, Training
from dsgen.strategies.buffers import Buffers
from dsgen.strategies.strategies import Strategy

__all__ = ["NO_COLLECTIVES", "Collectives", "Exchange", "Exchanges", "collectives", "exchanges", "reductions"]

SCALED = 6144  # elements that share a scale in fp32, as the quantizer of 0.19.8 divides weights of 4096 by 4608
SCALE_BYTES = 4


class Exchange(NamedTuple):
    """Collectives of one kind and size.

    Attributes:
        kind: As torch.distributed names it: all_gather, all_reduce, broadcast, reduce_scatter.
        ranks: Ranks that take part.
        bytes: Of one call: the whole tensor.
        calls: How many in a step.
    """

    kind: str
    ranks: int
    bytes: float
    calls: int


class Exchanges(NamedTuple):
    """All collectives between replicas in one optimizer step but those of a few bytes: the norm, and what overflowed.

    Attributes:
        forward: Parameters gathered in forward (stage 3), in all micro-batches.
        backward: The same in backward, and in the forward that checkpointing repeats.
        reduced: Gradients.
        updated: Behind the step: what each rank has updated (stages 1 and 2), or what no rank gives away (stage 3).
        copied: Elements of a weight gathered in a micro-batch.
        together: Those of them that come several tensors in a call.
    """

    forward: tuple[Exchange, ...] = ()
    backward: tuple[Exchange, ...] = ()
    reduced: tuple[Exchange, ...] = ()
    updated: tuple[Exchange, ...] = ()
    copied: int = 0
    together: int = 0

    @property
    def all(self) -> tuple[Exchange, ...]:
        """Every one of them."""
        return (*self.forward, *self.backward, *self.reduced, *self.updated)


class Collectives(NamedTuple):
    """What ZeRO moves between replicas, in seconds.

    Attributes:
        gather: Parameters gathered in one forward (stage 3).
        again: The same in one backward, and in the forward that checkpointing repeats.
        reduce: All gradients reduced once; in every pass from stage 2 on, else in the last one.
        update: After the step: updated parameters (stages 1 and 2), or those that no rank gives away (stage 3).
        gathers: Calls of the first, which the host issues.
        gathers_again: Calls of the second.
        reduces: Calls of the third.
        slows: How much longer kernels take beside the reductions, by their own time.
        copied: Elements of a weight that both gather.
        together: Those of them that come several tensors in a call.
    """

    gather: float = 0.0
    again: float = 0.0
    reduce: float = 0.0
    update: float = 0.0
    gathers: float = 0.0
    gathers_again: float = 0.0
    reduces: int = 0
    slows: float = 0.0
    copied: int = 0
    together: int = 0


NO_COLLECTIVES = Collectives()


class _Exchanged(NamedTuple):
    """What the collectives of a step depend on."""

    model: Model
    training: Training
    replicas: int
    stage: int
    tp: int
    precision: str
    buffers: Buffers
    checkpointing: bool
    accumulation: int
    eight_bits: bool
    deepspeed: bool
    returns: bool


def exchanges(job: Job, strategy: Strategy) -> Exchanges:
    """The collectives between a strategy's replicas in one optimizer step, as DeepSpeed 0.19.8 calls them."""
    if job.world == strategy.tp:
        return Exchanges()
    return _exchanges(_asked(job, strategy, True))


def reductions(job: Job, strategy: Strategy) -> Buckets:
    """The buckets in which the gradients of a pass are reduced, from stage 1 on."""
    return _buckets(_asked(job, strategy, True))


def _buckets(asked: _Exchanged) -> Buckets:
    run = _run(asked)
    runs = runs_of(run) if asked.model.experts else ()  # of a mixture, experts come before what is around them
    replicas = asked.replicas if asked.stage < 3 else 0
    return filled_buckets(trained(asked.model, *run.trains), asked.buffers.reduce_bucket, replicas, runs)


def _run(asked: _Exchanged) -> Run:
    told = asked.stage == 3
    run = Run(asked.model, asked.training, 0, asked.precision, asked.tp, asked.checkpointing, told)
    return run._replace(returns=asked.returns)


def _asked(job: Job, strategy: Strategy, deepspeed: bool) -> _Exchanged:
    return _Exchanged(
        job.model,
        recomputed(job.training, strategy.stage, job.version),
        job.world // strategy.tp,
        strategy.stage,
        strategy.tp,
        strategy.precision,
        strategy.buffers,
        strategy.checkpointing,
        strategy.accumulation,
        job.unsure.fetched,
        deepspeed,
        must_reenter(job.training.method, strategy.stage, job.version),
    )


@functools.lru_cache(maxsize=4096)
def _exchanges(asked: _Exchanged) -> Exchanges:
    size = 4 if asked.precision == "fp32" else 2
    buffers, replicas = asked.buffers, asked.replicas
    run = _run(asked)
    gradients = trained(asked.model, *run.trains)
    # At stage 0 and 1 the gradients of a step are reduced in its last micro-batch, from stage 2 on in each.
    passes = asked.accumulation if asked.stage >= 2 else 1

    def mean(kind: str, calls: int) -> tuple[Exchange, ...]:
        return (Exchange(kind, replicas, size * gradients.elements / calls, calls * passes),) if calls else ()

    if asked.stage == 0:
        return Exchanges(reduced=mean("all_reduce", flat_chunks(gradients)))
    buckets = _buckets(asked).calls
    if asked.stage < 3:
        # A bucket is summed whole, and each rank takes its part (stage_1_and_2.py, use_multi_rank_bucket_allreduce).
        reduced = mean("all_reduce", buckets)
        if asked.stage == 1 and not asked.deepspeed:
            return Exchanges(reduced=reduced, updated=_by_owner(gradients, replicas, size))
        # One call gathers all, whatever allgather_bucket_size says (runtime/utils.py, all_gather_dp_groups).
        whole = Exchange("all_gather", replicas, size * gradients.elements, 1)
        return Exchanges(reduced=reduced, updated=(whole,) if gradients.elements else ())
    if not asked.deepspeed:
        return _by_block(asked, run, size)
    group = buffers.secondary if 1 < buffers.secondary < replicas else 0
    first = gathers(run, buffers, bool(group), passes > 1 and not group)
    # hpZ's second shares are made when what was gathered is first released, and given up in the step
    # (partition_parameters.py, partition; stage3.py, invalidate_secondary_tensor).
    later = gathers(run, buffers) if group else first
    forward, backward = (
        (*_calls(asked, one, size, 1, group, False), *_calls(asked, other, size, passes - 1, group, bool(group)))
        for one, other in zip(first, later, strict=True)
    )
    kept = persistent_tensors(run, buffers.persistence)
    updated = tuple(Exchange("all_gather", replicas, size * numel, calls) for numel, calls in kept)
    return Exchanges(forward, backward, mean("reduce_scatter", buckets), updated, sum(first.elements), first.several)


def _by_block(asked: _Exchanged, run: Run, size: int) -> Exchanges:
    """The same where each block is gathered and reduced in one call, as PyTorch's FSDP does where a block is a unit."""
    numbers, blocks, replicas = count(asked.model, *run.trains, 0), asked.model.layers, asked.replicas
    block, passes = numbers.block, asked.accumulation
    rest = Exchange("all_gather", replicas, size * max(0, numbers.total - blocks * block), passes)
    every = Exchange("all_gather", replicas, size * block, blocks * passes)
    made = Exchange("reduce_scatter", replicas, size * numbers.trained / (blocks + 1), (blocks + 1) * passes)
    return Exchanges((every, rest), (every,), (made,), copied=2 * numbers.total)


def _by_owner(tensors: Trained, replicas: int, size: int) -> tuple[Exchange, ...]:
    """Updated weights at stage 1 without DeepSpeed: each rank owns whole tensors, and broadcasts them in one call.

    The next largest tensor goes to the rank that owns least: InternEvo's hybrid_zero_optim.py (InternLM/InternEvo@
    c18bec9, _partition_param_list, broadcast_params), and torch's ZeroRedundancyOptimizer.
    """
    owned = [(0, rank) for rank in range(min(replicas, len(tensors.numels)))]  # a heap
    for numel in sorted(tensors.numels, reverse=True):
        least, rank = owned[0]
        heapq.heapreplace(owned, (least + numel, rank))
    often = Counter(numel for numel, _ in owned)
    return tuple(Exchange("broadcast", replicas, size * numel, calls) for numel, calls in sorted(often.items()))


def _calls(asked: _Exchanged, rows: Rows, size: int, passes: int, group: int, second: bool) -> Iterable[Exchange]:
    """The gathers of some micro-batches; with qwZ each is two, of the weights in 8 bits and of their scales."""
    for gather, calls in rows if passes else ():
        ranks = group if gather.second or second else asked.replicas
        if asked.eight_bits:
            # The kernels that make 16 bits of them again are counted in `handling` (csrc/quantization).
            yield Exchange("all_gather", ranks, gather.elements, calls * passes)
            yield Exchange("all_gather", ranks, SCALE_BYTES * gather.elements / SCALED, calls * passes)
        else:
            yield Exchange("all_gather", ranks, size * gather.elements, calls * passes)


def collectives(job: Job, strategy: Strategy, *, deepspeed: bool = True) -> Collectives:
    """What a strategy's replicas move, in seconds; by DeepSpeed's calls, or by one for each block."""
    if job.world == strategy.tp:
        return NO_COLLECTIVES
    return _collectives(_asked(job, strategy, deepspeed), job.hardware, job.network, job.gpus_per_node)


@functools.lru_cache(maxsize=4096)
def _collectives(asked: _Exchanged, hardware: Hardware, network: Network, gpus_per_node: int) -> Collectives:
    rates, tp = node_rates(hardware, network), asked.tp
    inside = max(1, gpus_per_node // tp)
    called = _exchanges(asked)

    ways: dict[tuple[str, int], tuple[tuple[float, float], ...]] = {}

    def spent(rows: Iterable[Exchange]) -> float:
        seconds = 0.0
        for kind, ranks, size, calls in rows:
            lines = ways.get((kind, ranks))
            if lines is None:
                others = 1 if ranks == asked.replicas else max(1, min(inside, asked.replicas) // ranks)
                lines = ways[kind, ranks] = collective_lines(rates, kind, ranks, min(ranks, inside), others * tp)
            seconds += calls * min([start + size * each for start, each in lines])
        return seconds

    passes = asked.accumulation
    forward, backward = (sum(one.calls for one in rows) / passes for rows in (called.forward, called.backward))
    reductions = passes if asked.stage >= 2 else 1
    slows = 0.0
    if 0 < asked.stage < 3:
        slows = contention(rates, "all_reduce", asked.replicas, inside, groups_per_node=tp)
    return Collectives(
        gather=spent(called.forward) / passes,
        again=spent(called.backward) / passes,
        reduce=spent(called.reduced) / reductions,
        update=spent(called.updated),
        gathers=forward,
        gathers_again=backward,
        reduces=sum(one.calls for one in called.reduced) // reductions,
        slows=slows,
        copied=called.copied,
        together=called.together,
    )
