"""Every tensor of a model with its shape and count, and the sums over them."""

from __future__ import annotations

import functools

from dsgen.families import FAMILIES
from dsgen.families.parameters.tensors import CACHED_MODELS, Parameter, stretches
from dsgen.shapes.profiles import Model

__all__ = [
    "active_parameter_count",
    "block_elements",
    "encoder_parameter_count",
    "largest_matrix",
    "model_types",
    "parameter_count",
    "parameters",
    "routed_parameter_count",
]

_READ = (".EncDecAttention.k.weight", ".EncDecAttention.v.weight")  # of T5: what a decoder's block reads of an encoder


def model_types() -> tuple[str, ...]:
    """Every supported `model_type`, sorted."""
    return tuple(FAMILIES)


@functools.lru_cache(maxsize=CACHED_MODELS)
def parameters(model: Model) -> tuple[Parameter, ...]:
    """Every tensor of the model, in the order in which Hugging Face's class first names it.

    A head tied to the embedding is not listed. Blocks that differ (the dense first ones of a mixture of experts) give
    separate entries.

    Raises:
        DsgenError: The architecture is unknown, or the facts contradict it (a GPT-2 with fewer key heads than heads).
    """
    merged: dict[tuple[str, tuple[int, ...]], Parameter] = {}
    for stretch in stretches(model):
        for item in stretch.parameters:
            earlier = merged[item.name, item.shape].repeats if (item.name, item.shape) in merged else 0
            merged[item.name, item.shape] = item._replace(repeats=earlier + stretch.repeats)
    return tuple(merged.values())


@functools.lru_cache(maxsize=CACHED_MODELS)
def parameter_count(model: Model) -> int:
    """All parameters of the model, shared tensors once."""
    return sum(parameter.total for parameter in parameters(model))


@functools.lru_cache(maxsize=CACHED_MODELS)
def active_parameter_count(model: Model) -> int:
    """Parameters that one token passes: all of a dense model; of a mixture, the routed experts' share and the rest."""
    return sum(
        parameter.total // model.experts * model.experts_per_token if parameter.kind == "expert" else parameter.total
        for parameter in parameters(model)
    )


@functools.lru_cache(maxsize=CACHED_MODELS)
def routed_parameter_count(model: Model) -> int:
    """Parameters of the experts that one token is routed to; 0 for a dense model."""
    return sum(
        parameter.total // model.experts * model.experts_per_token
        for parameter in parameters(model)
        if parameter.kind == "expert"
    )


@functools.lru_cache(maxsize=CACHED_MODELS)
def encoder_parameter_count(model: Model) -> int:
    """Parameters that a token passes where a model has an encoder that reads it: there, and as a key and a value."""
    return sum(
        parameter.total
        for parameter in parameters(model)
        if parameter.name.startswith("encoder.") or parameter.name.endswith(_READ)
    )


@functools.lru_cache(maxsize=CACHED_MODELS)
def block_elements(model: Model) -> int:
    """Elements of the largest transformer block (with all experts where it has them)."""
    if not model.layers:
        return 0
    per_block = sum(item.numel for item in parameters(model) if item.layer and item.repeats == model.layers)
    kinds: dict[int, int] = {}
    for item in parameters(model):
        if item.layer and item.repeats < model.layers:
            kinds[item.repeats] = kinds.get(item.repeats, 0) + item.numel
    return per_block + max(kinds.values(), default=0)


@functools.lru_cache(maxsize=CACHED_MODELS)
def largest_matrix(model: Model) -> int:
    """Elements of the largest dense matrix of a block."""
    return max(item.numel for item in parameters(model) if item.layer and item.kind != "expert")
