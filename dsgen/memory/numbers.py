"""Element counts of a model on one GPU: trained and frozen, sharded by tensor parallelism, block by block."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from dsgen.buffers import block_elements
from dsgen.memory.trained import sharded
from dsgen.parameters import lora_parameters, parameters
from dsgen.profiles import Model

__all__ = ["Numbers", "count"]


class Numbers(NamedTuple):
    """Elements on one tensor-parallel rank.

    Attributes:
        trained: Elements with a gradient.
        frozen_linear: Frozen elements of linear layers (what QLoRA stores in 4 bit).
        frozen_other: Other frozen elements: embeddings, head, norms.
        block: The largest transformer block.
        largest: The largest single tensor.
        block_largest: The largest tensor inside a block.
        persistent: Elements of tensors at or below the persistence threshold, which stage 3 never partitions.
    """

    trained: int
    frozen_linear: int
    frozen_other: int
    block: int
    largest: int
    block_largest: int
    persistent: int

    @property
    def total(self) -> int:
        """Every element of the model on this rank."""
        return self.trained + self.frozen_linear + self.frozen_other


@functools.lru_cache(maxsize=8192)
def count(
    model: Model, method: str, lora_rank: int, lora_targets: tuple[str, ...], tp: int, persistence: int
) -> Numbers:
    """The element counts of a model under one way of training it.

    Args:
        model: The architecture.
        method: full, lora or qlora.
        lora_rank: Rank of the adapters.
        lora_targets: Names of the matrices that get one.
        tp: AutoTP degree.
        persistence: stage3_param_persistence_threshold, in elements.
    """
    linear = other = persistent = largest = inside = 0
    for item in parameters(model):
        numel = sharded(model, item, tp)
        largest = max(largest, numel)
        inside = max(inside, numel if item.layer else 0)
        if numel <= persistence:
            persistent += numel * item.repeats
        if item.matrix and item.layer:
            linear += numel * item.repeats
        else:
            other += numel * item.repeats
    block = math.ceil(block_elements(model) / tp)
    if method == "full":
        return Numbers(linear + other, 0, 0, block, largest, inside, persistent)
    adapters = lora_parameters(model, lora_rank, lora_targets)
    return Numbers(adapters, linear, other, block, largest, inside, persistent + min(adapters, persistence))
