"""Every tensor of a model with its shape and count, and the sums over them."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import attrs

from dsgen.errors import mistake
from dsgen.parameters.layouts import LAYOUTS
from dsgen.parameters.tensors import CACHED_MODELS, Parameter, stretches
from dsgen.profiles import Model

__all__ = [
    "ALL_LINEAR",
    "active_parameter_count",
    "adapted",
    "lora_parameters",
    "model_types",
    "parameter_count",
    "parameters",
    "routed_parameter_count",
]

ALL_LINEAR = "all-linear"  # peft's word for every linear layer but the output head


def model_types() -> tuple[str, ...]:
    """Every supported `model_type`, sorted."""
    return tuple(LAYOUTS)


@functools.lru_cache(maxsize=CACHED_MODELS)
def parameters(model: Model) -> tuple[Parameter, ...]:
    """Every tensor of the model, in the order in which Hugging Face's class first names it.

    A head tied to the embedding is not listed. Blocks that differ (the dense first ones of a mixture of experts) give
    separate entries.

    Raises:
        DsgenError: The architecture is unknown, or the facts contradict it (a GPT-2 with fewer key heads than heads).
    """
    found: dict[tuple[str, tuple[int, ...]], Parameter] = {}
    for stretch in stretches(model):
        for item in stretch.parameters:
            earlier = found[item.name, item.shape].repeats if (item.name, item.shape) in found else 0
            found[item.name, item.shape] = attrs.evolve(item, repeats=earlier + stretch.repeats)
    return tuple(found.values())


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


def lora_parameters(model: Model, rank: int, targets: Iterable[str]) -> int:
    """Parameters of LoRA adapters: rank x (in + out) for every adapted matrix, as peft builds them.

    Args:
        model: The model that is adapted.
        rank: Rank of every adapter, at least 1.
        targets: Module names by their last part or parts (`q_proj`, `self_attn.q_proj`), or `all-linear`: every linear
            layer but the output head.

    Raises:
        DsgenError: No target, or one that names no matrix of the model.
    """
    if rank < 1:
        raise mistake(f"lora_rank is {rank}", must="it must be at least 1")
    names = adapted(model, tuple(targets))
    return sum(rank * sum(item.shape) * item.repeats for item in parameters(model) if item.name in names)


@functools.lru_cache(maxsize=CACHED_MODELS)
def adapted(model: Model, targets: tuple[str, ...]) -> frozenset[str]:
    """Names of the matrices that get adapters, the layer index folded to `*`.

    Raises:
        DsgenError: As for `lora_parameters`.
    """
    matrices = [parameter for parameter in parameters(model) if parameter.matrix]
    if not targets:
        raise mistake("lora_targets is empty", must="it must name at least one matrix", todo=_valid_targets(matrices))
    names: set[str] = set()
    for target in targets:
        matches = [parameter.name for parameter in matrices if _matches(parameter, target)]
        if not matches:
            raise mistake(
                f"lora_targets names {target!r}",
                must=f"it must name a matrix of {model.architecture}",
                todo=_valid_targets(matrices),
            )
        names.update(matches)
    return frozenset(names)


def _module(parameter: Parameter) -> str:
    return parameter.name.rpartition(".")[0]


def _matches(parameter: Parameter, target: str) -> bool:
    if target == ALL_LINEAR:
        return parameter.kind != "head"
    return f".{_module(parameter)}".endswith(f".{target}")


def _valid_targets(matrices: list[Parameter]) -> str:
    names = dict.fromkeys(_module(matrix).rpartition(".")[2] for matrix in matrices)
    return f"Valid: {ALL_LINEAR}, {', '.join(names)}."
