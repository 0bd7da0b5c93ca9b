"""What the ranks of one tensor-parallel group exchange."""

import functools
from typing import NamedTuple

from dsgen.cost.communication import Exchange
from dsgen.cost.micro_batches import node_rates
from dsgen.cost.sample_lengths import computed_length
from dsgen.families import family_of
from dsgen.families.parameters import stretches
from dsgen.jobs.job import Job
from dsgen.kernels import collective_lines
from dsgen.shapes.profiles import Hardware, Model, Network
from dsgen.strategies.strategies import Strategy

__all__ = ["tensor_parallel_calls", "tensor_parallel_exchanges", "tensor_parallel_seconds"]

AFTER_BLOCK = "post_feedforward_layernorm"  # the norm behind the last layer of Gemma's blocks
FP32 = 4  # bytes of an element


class _Calls(NamedTuple):
    """Collectives of one micro-batch.

    Attributes:
        hidden: All-reduces of hidden states.
        tokens: All-reduces of a number in fp32 for each token.
        logits: All-gathers of logits.
    """

    hidden: int
    tokens: int
    logits: int


@functools.lru_cache(maxsize=256)
def _calls(model: Model, checkpointing: bool) -> _Calls:
    """What AutoTP of DeepSpeed 0.19.8 calls in one micro-batch (module_inject/layers.py).

    Forward adds up what row-parallel layers made, backward what goes into each column-parallel one: five in a block
    whose query, key, value, gate and up projection are layers of their own. A second forward ends before it adds up the
    last layer of a block, unless a norm follows. A head of its own is gathered in forward; a tied one is not: the loss
    is taken from its shards, by the most, the sum and the label's logit of each token.
    """
    rows = columns = again = 0
    for stretch in stretches(model):
        matrices = [item for item in stretch.parameters if stretch.blocks and item.split and item.matrix]
        added = sum(item.added_up for item in matrices)
        rows += stretch.repeats * added
        columns += stretch.repeats * (len(matrices) - added)
        normed = any(AFTER_BLOCK in item.name for item in stretch.parameters)
        again += stretch.repeats * max(0, added - (not normed))
    hidden = rows + columns + (again if checkpointing else 0)
    if not family_of(model).autotp.splits_head(model.tied_embeddings):
        return _Calls(hidden, 0, 0)
    return _Calls(hidden + 2, 3, 0) if model.tied_embeddings else _Calls(hidden + 1, 0, 1)


class _Sum(NamedTuple):
    """One kind of collective that a micro-batch asks of a tensor-parallel group.

    Attributes:
        kind: As torch.distributed names it.
        bytes: Of one call, for a token of the micro-batch.
        calls: How many in a micro-batch.
    """

    kind: str
    bytes: int
    calls: int


@functools.lru_cache(maxsize=256)
def _sums(model: Model, checkpointing: bool, precision: str) -> tuple[_Sum, ...]:
    calls, size = _calls(model, checkpointing), FP32 if precision == "fp32" else 2
    every = (
        _Sum("all_reduce", size * model.hidden_size, calls.hidden),
        _Sum("all_reduce", FP32, calls.tokens),
        _Sum("all_gather", size * model.vocab_size, calls.logits),
    )
    return tuple(one for one in every if one.calls)


def tensor_parallel_exchanges(job: Job, strategy: Strategy) -> tuple[Exchange, ...]:
    """The collectives of one tensor-parallel group in one optimizer step."""
    if strategy.tp == 1:
        return ()
    tokens, passes = strategy.micro_batch * computed_length(job, strategy), strategy.accumulation
    return tuple(
        Exchange(kind, strategy.tp, size * tokens, passes * calls)
        for kind, size, calls in _sums(job.model, strategy.checkpointing, strategy.precision)
    )


def tensor_parallel_seconds(job: Job, strategy: Strategy) -> float:
    """Seconds of AutoTP's collectives in one optimizer step."""
    if strategy.tp == 1:
        return 0.0
    sums = _sums(job.model, strategy.checkpointing, strategy.precision)
    ways = _ways(sums, job.hardware, job.network, strategy.tp, min(strategy.tp, job.gpus_per_node))
    tokens, passes, seconds = strategy.micro_batch * computed_length(job, strategy), strategy.accumulation, 0.0
    for (_, size, calls), lines in zip(sums, ways, strict=True):
        seconds += passes * calls * min([start + tokens * size * each for start, each in lines])
    return seconds


@functools.lru_cache(maxsize=1024)
def _ways(
    sums: tuple[_Sum, ...], hardware: Hardware, network: Network, ranks: int, inside: int
) -> tuple[tuple[tuple[float, float], ...], ...]:
    """`collective_lines` of each."""
    rates = node_rates(hardware, network)
    return tuple(collective_lines(rates, one.kind, ranks, inside) for one in sums)


def tensor_parallel_calls(job: Job, strategy: Strategy) -> int:
    """AutoTP's collectives in one micro-batch."""
    calls = _calls(job.model, strategy.checkpointing)
    return calls.hidden + calls.tokens + calls.logits
