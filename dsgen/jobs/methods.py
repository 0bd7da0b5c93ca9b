"""The training profile of a method, however the method was asked for: below what other profiles say themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from dsgen import catalog
from dsgen.catalog.structure import spelled
from dsgen.catalog.wishes import decider
from dsgen.shapes.errors import mistake
from dsgen.shapes.layers import Layer, Override, Provenance, Rank, fold
from dsgen.shapes.profiles import Training

__all__ = ["BY_METHOD", "settled", "with_method"]

BY_METHOD = {"full": "standard", "lora": "lora", "qlora": "qlora"}  # method -> the training profile made for it
_METHOD = "training.method"
# Wishes that bound or say one thing in two ways: the one said above the other alone counts.
_EITHER = (("tokens_per_step", "tokens_per_gpu"), ("total_steps", "total_tokens"))
_ONE = "total_steps"  # of its pair one may be said


def with_method(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The layers with the training profile of the method that they ask for.

    A rate or a decay that a profile took over from that of another method gives way; what it says itself stays, and so
    does the method that it names, so that `why` shows who lost.
    """
    method = _method(layers)
    if not isinstance(method, str) or method not in BY_METHOD:
        return tuple(layers)  # the assembly refuses it, and says where it stands
    own = catalog.find("training", BY_METHOD[method]).layer
    quiet = tuple(item for item in own.overrides if item.path != _METHOD or item.value == Training().method)
    named = [layer for layer in layers if layer.rank == Rank.TRAINING]
    if not named:
        return (*layers, own._replace(overrides=quiet))
    if method == "full" and not any(_says(layer, _METHOD) for layer in named):
        return tuple(layers)  # nothing of another method is in them
    made = [item for name in BY_METHOD.values() for item in catalog.find("training", name).layer.overrides]
    others = [item for item in made if item not in own.overrides and item.path != _METHOD]
    kept = [_without(layer, others) if layer.rank == Rank.TRAINING else layer for layer in layers]
    said = {item.path for layer in named for item in layer.overrides if item not in made}
    rest = tuple(item for item in quiet if item.path not in said)
    return (*([own._replace(overrides=rest)] if method != "full" else ()), *kept)


def _method(layers: Sequence[Layer]) -> object:
    """The method in force once the layers are folded."""
    said = [
        layer._replace(overrides=tuple(item for item in layer.overrides if item.path == _METHOD)) for layer in layers
    ]
    return spelled("training", "method", fold(said).tree.get("training", {}).get("method", Training().method))


def _says(layer: Layer, path: str) -> bool:
    return any(item.path == path for item in layer.overrides)


def _without(layer: Layer, others: Sequence[Override]) -> Layer:
    return layer._replace(overrides=tuple(item for item in layer.overrides if item not in others))


def settled(wishes: Training, provenance: Provenance) -> Training:
    """The wishes, where of two that say one thing only the one said above the other counts.

    Raises:
        DsgenError: The length of training is said in steps and in tokens at one rank.
    """
    for first, second in _EITHER:
        if getattr(wishes, first) is None or getattr(wishes, second) is None:
            continue
        one, other = (decider(f"training.{name}", provenance) for name in (first, second))
        ranks = [item.rank if item else Rank.DEFAULT for item in (one, other)]
        if ranks[0] != ranks[1]:
            lost: dict[str, Any] = {second if ranks[0] > ranks[1] else first: None}
            wishes = attrs.evolve(wishes, **lost)
        elif first == _ONE:
            raise mistake(
                f"training.{first} is {getattr(wishes, first):,} and training.{second} {getattr(wishes, second):,.0f}",
                must="both say how long training lasts, and one of them must",
                where=other.origin if other else None,
                todo="Drop one of the two.",
                code="contradiction",
            )
    return wishes
