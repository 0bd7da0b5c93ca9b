"""Element counts of a model on one GPU: trained and frozen, sharded by tensor parallelism, block by block."""

import functools
import math
from typing import Any, NamedTuple

from dsgen.families import family_of
from dsgen.families.parameters import Parameter, added, block_elements, in_outer_module, parameters, stretches
from dsgen.shapes.profiles import Model

__all__ = ["PACKED", "Numbers", "count", "linear", "making", "partitioned", "quantized", "splitting"]

PACKED = 4  # weights of 4 bits in an element of the 16-bit type that stage 3 keeps them as (bnb_4bit_quant_storage)


class Numbers(NamedTuple):
    """Elements on one tensor-parallel rank.

    Attributes:
        trained: Elements with a gradient.
        frozen_linear: Frozen elements of linear layers (what QLoRA stores in 4 bit).
        frozen_other: Other frozen elements: embeddings, head, norms.
        block: The largest transformer block.
        largest: The largest single tensor.
        persistent: Elements of tensors at or below the persistence threshold, which stage 3 never partitions.
        persistent_adapters: Those of adapters among them.
    """

    trained: int
    frozen_linear: int
    frozen_other: int
    block: int
    largest: int
    persistent: int
    persistent_adapters: int

    @property
    def total(self) -> int:
        """Every element of the model on this rank."""
        return self.trained + self.frozen_linear + self.frozen_other


def quantized(model: Model, method: str) -> bool:
    """Whether the linear layers of the blocks hold 4-bit weights."""
    return method == "qlora" and family_of(model).packs


def linear(model: Model, item: Parameter) -> bool:
    """Whether a tensor of a block is the weight of a linear layer, which a 4-bit base packs."""
    return item.layer and (item.matrix or (model.experts_apart and item.kind == "expert"))


def partitioned(model: Model, item: Parameter, tp: int, packed: bool) -> int:
    """Elements that a tensor has for stage 3; `packed` is whether linear layers hold 4-bit weights."""
    numel = item.sharded(tp)
    return -(-numel // PACKED) if packed and linear(model, item) else numel


@functools.lru_cache(maxsize=8192)
def count(
    model: Model,
    method: str,
    lora_rank: int,
    lora_targets: tuple[str, ...],
    tp: int,
    embeddings: bool,
    persistence: int,
) -> Numbers:
    """The element counts of a model under one way of training it.

    Args:
        model: The architecture.
        method: full, lora or qlora.
        lora_rank: Rank of the adapters.
        lora_targets: Names of the matrices that get one.
        tp: AutoTP degree.
        embeddings: Copies of embedding and head are trained beside the adapters.
        persistence: stage3_param_persistence_threshold, in elements.
    """
    layers = other = persistent = adapted = largest = trained = 0
    adapters = {} if method == "full" else added(model, lora_rank, lora_targets, embeddings)
    packed = quantized(model, method)
    for item in parameters(model):
        numel = item.sharded(tp)
        largest = max(largest, numel)
        own = adapters.get(item.name, ())
        trained += sum(own) * item.repeats
        whole = partitioned(model, item, tp, packed)
        persistent += whole * item.repeats if whole <= persistence else 0
        small = sum(size for size in own if size <= persistence) * item.repeats
        persistent += small
        adapted += 0 if in_outer_module(item) else small
        if linear(model, item):
            layers += numel * item.repeats
        else:
            other += numel * item.repeats
    block = math.ceil(block_elements(model) / tp)
    if method == "full":
        return Numbers(layers + other, 0, 0, block, largest, persistent, 0)
    return Numbers(trained, layers, other, block, largest, persistent, adapted)


@functools.lru_cache(maxsize=1024)
def _made(model: Model) -> tuple[tuple[int, int], ...]:
    """The modules at which memory can be highest while a model is made under zero.Init, which cuts module by module.

    AutoTP splits it later.

    A module's tensors are cut one after the other, and each is freed when this rank has its share: that is most when
    the first has been cut.

    Returns:
        (elements of the model that have been cut by then; elements of the module's own tensors).
    """
    modules: list[tuple[int, int]] = []
    done = 0
    for stretch in stretches(model):
        own: dict[str, list[int]] = {}
        for item in stretch.parameters:
            own.setdefault(item.name.rpartition(".")[0], []).append(item.numel)
        row = sum(map(sum, own.values()))
        upto = done + (stretch.repeats - 1) * row
        for sizes in own.values():
            modules.append((upto + sizes[0], sum(sizes)))
            upto += sum(sizes)
        done += stretch.repeats * row
    if model.tied_embeddings:  # the head is made too, and tied to the embedding when all is there
        head = max(item.numel for item in parameters(model) if item.kind == "embedding")
        tables = 3 if model.encoder_layers else 1  # either stack has made a table of its own too
        modules.append((done + tables * head, head))
    kept: list[tuple[int, int]] = []
    for one in reversed(modules):
        if not kept or one[1] > kept[-1][1]:
            kept.append(one)
    return tuple(kept)


def making(model: Model, layout: Any, ranks: int, size: int, copied: int, frozen: int, group: int | None = None) -> int:
    """Bytes of the module in the making, and of this rank's shares until then, where both are most.

    peft copies the gathered embedding and head when all else is there: `copied` elements, the head gathered among them,
    beside this rank's share of `frozen` bytes. (Trained whole, the model has no frozen ones.) hpZ gives each tensor a
    second share, among the ranks of a `group`.
    """
    modules = _made(model)
    copied = size * copied if frozen else 0
    if layout.offload_param != "none":
        return max(size * modules[-1][1], copied)
    shares = 1 + (ranks // group if group else 0)
    most = max(shares * -(-upto // ranks) + own for upto, own in modules)
    return max(size * most, copied and copied + shares * -(-frozen // ranks))


@functools.lru_cache(maxsize=1024)
def splitting(model: Model, tp: int) -> tuple[int, int]:
    """The highest moment while AutoTP splits a model made under zero.Init, module by module, a tied table last.

    It gathers a module's tensors, copies them, and keeps its part of the copy until stage 3 cuts that among the
    replicas (module_inject/auto_tp.py, _gather_zero3_params).

    Returns:
        (elements of the parts that are there by then, beside every share; elements of the module's tensors, which are
        there twice).
    """
    done, best = 0, (0, 0)
    late = 0  # of a tied table
    for stretch in stretches(model):
        own: dict[str, tuple[int, int]] = {}
        for item in stretch.parameters:
            whole, part = own.get(name := item.name.rpartition(".")[0], (0, 0))
            own[name] = whole + item.numel, part + item.sharded(tp)
            if item.kind == "embedding" and part + item.sharded(tp) < item.numel:
                late = item.numel
        split = [one for one in own.values() if one[1] < one[0] and one[0] != late]
        row = sum(part for _, part in split)
        upto = done + (stretch.repeats - 1) * row
        for whole, part in split:
            best = max(best, (upto, whole), key=_twice)
            upto += part
        done += stretch.repeats * row
    return max(best, (done, late), key=_twice) if late else best


def _twice(elements: tuple[int, int]) -> int:
    return elements[0] + 2 * elements[1]
