"""Which tensors of a model LoRA adapts and how large the adapters are, as peft 0.21 builds them with transformers 5."""

import functools
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from dsgen.families import family_of
from dsgen.families.parameters.counts import parameters
from dsgen.families.parameters.tensors import CACHED_MODELS, Parameter
from dsgen.families.peft import ALL_LINEAR, PAIR
from dsgen.shapes.errors import mistake
from dsgen.shapes.profiles import Model

__all__ = [
    "ALL_LINEAR",
    "Adapter",
    "adapters",
    "adapts",
    "adapts_head",
    "added",
    "expert_target",
    "fused_targets",
    "in_outer_module",
    "lora_parameters",
    "unfused",
]


class Adapter(NamedTuple):
    """Elements of the two trained matrices of one tensor's adapter: lora_A, which takes its input, and lora_B."""

    low: int
    high: int


def fused_targets(model: Model) -> Mapping[str, str]:
    """Names that peft takes for a part of the experts or for the router -> the tensor, without the block's name."""
    return family_of(model).parts


def expert_target(model: Model, targets: Iterable[str]) -> str | None:
    """The first target that is for experts or their router; None where none is."""
    fused = fused_targets(model)
    named = (target for target in targets if target == ALL_LINEAR or any(_named(old, target) for old in fused))
    return next(named, None) if fused else None


def adapts_head(model: Model, targets: Iterable[str]) -> bool:
    """Whether the output head gets an adapter: only where it is named, peft's "all-linear" leaves it out."""
    named = {target.rpartition(".")[2] for target in targets}
    return any(_module(item).rpartition(".")[2] in named for item in parameters(model) if item.kind == "head")


def unfused(model: Model) -> tuple[str, ...]:
    """Names of the modules that peft adapts as linear layers: all but experts and routers."""
    plain = (_module(item).rpartition(".")[2] for item in parameters(model) if item.matrix)
    return tuple(name for name in dict.fromkeys(plain) if name not in fused_targets(model))


def in_outer_module(item: Parameter) -> bool:
    """Whether a tensor is in the input embedding or in the output head."""
    return item.kind in ("embedding", "head") or (item.kind == "bias" and not item.layer)


@functools.lru_cache(maxsize=CACHED_MODELS)
def added(model: Model, rank: int, targets: tuple[str, ...], embeddings: bool) -> Mapping[str, tuple[int, ...]]:
    """Names of the tensors beside which peft trains others, and the elements of those, in order.

    Args:
        model: The model.
        rank: Rank of the adapters.
        targets: Names of the matrices that get one.
        embeddings: A copy of the input embedding and of the output head is trained (modules_to_save).

    Raises:
        DsgenError: As for `adapters`.
    """
    adapted: Mapping[str, tuple[int, ...]] = adapters(model, rank, targets)
    if not embeddings:
        return adapted
    return {**adapted, **{item.name: (item.numel,) for item in parameters(model) if in_outer_module(item)}}


def lora_parameters(model: Model, rank: int, targets: Iterable[str]) -> int:
    """Parameters of LoRA adapters.

    Args:
        model: The model that is adapted.
        rank: Rank of every adapter, at least 1.
        targets: Module names by their last part or parts (`q_proj`, `self_attn.q_proj`), or `all-linear`: every linear
            layer but the output head, and where peft takes them for linear layers, experts and their routers.

    Raises:
        DsgenError: No target, or one that names no matrix of the model.
    """
    if rank < 1:
        raise mistake(f"lora_rank is {rank}", must="it must be at least 1")
    adapted = adapters(model, rank, tuple(targets))
    return sum(sum(adapted[item.name]) * item.repeats for item in parameters(model) if item.name in adapted)


@functools.lru_cache(maxsize=CACHED_MODELS)
def adapters(model: Model, rank: int, targets: tuple[str, ...]) -> Mapping[str, Adapter]:
    """Names of the tensors that get adapters, the layer index folded to `*`, and what they get.

    A linear layer gets rank x (in + out) elements; experts get as much each.

    Raises:
        DsgenError: As for `lora_parameters`.
    """
    if wrong := _wrong(model, targets):
        raise mistake(wrong.what, must=wrong.must, todo=_valid(model) if wrong.unknown else None)
    fused = fused_targets(model)
    ranks = {name: rank for target in targets for name in _matches(model, target, fused)}
    pair = sum(tensor == PAIR for tensor in fused.values())
    ranks = {name: pair * rank if name.endswith(PAIR) else rank for name in ranks}
    transposed = family_of(model).transposed
    sizes = {item.name: _sides(item, transposed) for item in parameters(model) if item.name in ranks}
    return MappingProxyType(
        {name: Adapter(ranks[name] * inputs, ranks[name] * outputs) for name, (inputs, outputs) in sizes.items()}
    )


def adapts(model: Model, targets: tuple[str, ...]) -> bool:
    """Whether peft takes targets for a model."""
    return _wrong(model, targets) is None


class _Wrong(NamedTuple):
    """What is wrong with targets, and what must be; `unknown` where those that are known help."""

    what: str
    must: str
    unknown: bool = True


def _wrong(model: Model, targets: tuple[str, ...]) -> _Wrong | None:
    fused = fused_targets(model)
    if not targets:
        return _Wrong("lora_targets is empty", "it must name at least one matrix")
    for target in targets:
        if not _matches(model, target, fused):
            return _Wrong(f"lora_targets names {target!r}", f"it must name a matrix of {model.architecture}")
    pair = [old for old, tensor in fused.items() if tensor == PAIR]
    missing = [old for old in pair if ALL_LINEAR not in targets and not any(_named(old, one) for one in targets)]
    if missing and len(missing) < len(pair):
        together = f"it must name {' and '.join(pair)} together: the experts keep them in one tensor"
        return _Wrong(f"lora_targets leaves out {missing[0]!r}", together, unknown=False)
    return None


def _matches(model: Model, target: str, fused: Mapping[str, str]) -> list[str]:
    """Names of the tensors that one target adapts."""
    if target == ALL_LINEAR:
        plain = [item for item in parameters(model) if item.matrix and item.kind != "head"]
        names = [item.name for item in plain if _module(item).rpartition(".")[2] not in fused]
        return names + [item.name for item in parameters(model) if item.name.endswith(tuple(fused.values()))]
    tensor = next((tensor for old, tensor in fused.items() if _named(old, target)), None)
    if tensor is not None:
        return [item.name for item in parameters(model) if item.name.endswith(tensor)]
    return [item.name for item in parameters(model) if item.matrix and f".{_module(item)}".endswith(f".{target}")]


def _named(old: str, target: str) -> bool:
    return target == old or target.endswith(f".{old}")


def _sides(item: Parameter, transposed: bool) -> tuple[int, int]:
    """Inputs and outputs of all experts of a tensor, or of a matrix."""
    *count, outputs, inputs = item.shape
    experts = count[0] if count else 1
    return (experts * outputs, experts * inputs) if transposed else (experts * inputs, experts * outputs)


def _module(parameter: Parameter) -> str:
    return parameter.name.rpartition(".")[0]


def _valid(model: Model) -> str:
    names = dict.fromkeys(_module(item).rpartition(".")[2] for item in parameters(model) if item.matrix)
    names.update(dict.fromkeys(fused_targets(model)))
    return f"Valid: {ALL_LINEAR}, {', '.join(names)}."
