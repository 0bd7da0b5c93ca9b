"""What the ranks of one tensor-parallel group exchange in a micro-batch."""

import functools
from typing import NamedTuple

from dsgen.families import family_of
from dsgen.families.parameters import stretches
from dsgen.jobs.job import Job
from dsgen.kernels import Rates, collective_seconds
from dsgen.shapes.profiles import Model
from dsgen.strategies.strategies import Strategy

__all__ = ["TensorParallel", "tensor_parallel_calls", "tensor_parallel_seconds"]

AFTER_BLOCK = "post_feedforward_layernorm"  # the norm behind the last layer of Gemma's blocks


class TensorParallel(NamedTuple):
    """What AutoTP's ranks exchange in one micro-batch.

    Attributes:
        hidden: All-reduces of hidden states.
        tokens: All-reduces of a number in fp32 for each token.
        logits: All-gathers of logits.
    """

    hidden: int
    tokens: int
    logits: int


@functools.lru_cache(maxsize=256)
def tensor_parallel_calls(model: Model, checkpointing: bool) -> TensorParallel:
    """The collectives of AutoTP in one micro-batch, as DeepSpeed 0.19.8 calls them (module_inject/layers.py).

    Forward adds up what row-parallel layers made, backward what goes into each column-parallel one: five in a block
    whose query, key, value, gate and up projection are layers of their own. A second forward ends before it adds up the
    last layer of a block, unless a norm follows. A head of its own is gathered in forward; a tied one is not: the loss
    is taken from its shards, by the most, the sum and the label's logit of each token.
    """
    family = family_of(model)
    rows = columns = again = 0
    for stretch in stretches(model):
        matrices = [item for item in stretch.parameters if stretch.blocks and item.split and item.matrix]
        added = sum(item.added_up for item in matrices)
        rows += stretch.repeats * added
        columns += stretch.repeats * (len(matrices) - added)
        normed = any(AFTER_BLOCK in item.name for item in stretch.parameters)
        again += stretch.repeats * max(0, added - (not normed))
    hidden = rows + columns + (again if checkpointing else 0)
    if not family.autotp.splits_head(model.tied_embeddings):
        return TensorParallel(hidden, 0, 0)
    if model.tied_embeddings:
        return TensorParallel(hidden + 2, 3, 0)
    return TensorParallel(hidden + 1, 0, 1)


def tensor_parallel_seconds(job: Job, strategy: Strategy, rates: Rates) -> float:
    """Seconds of AutoTP's collectives in one micro-batch."""
    if strategy.tp == 1:
        return 0.0
    calls = tensor_parallel_calls(job.model, strategy.checkpointing)
    size = 4 if strategy.precision == "fp32" else 2
    tokens = strategy.micro_batch * job.seq_len

    def spent(kind: str, moved: int) -> float:
        return collective_seconds(rates, kind, moved, strategy.tp, min(strategy.tp, job.gpus_per_node))

    seconds = calls.hidden * spent("all_reduce", size * tokens * job.model.hidden_size)
    if calls.tokens:
        seconds += calls.tokens * spent("all_reduce", 4 * tokens)
    if calls.logits:
        seconds += calls.logits * spent("all_gather", size * tokens * job.model.vocab_size)
    return seconds
