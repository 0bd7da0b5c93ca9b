""" "auto" where DeepSpeed has none: Hugging Face's word for "fill it in", which here leaves the key to the planner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dsgen.deepspeed.surface import Surface
from dsgen.shapes.layers import Layer, Override, leaves

__all__ = ["dropped", "left_open", "unfilled"]

AUTO = "auto"
_BUILT = ("optimizer.params.", "scheduler.params.")  # handed to a class, whose arguments the surface need not know


def dropped(layers: Iterable[Layer], known: Surface) -> tuple[Layer, ...]:
    """The layers without the overrides that only say `auto`; a key that knows the word keeps it."""
    return tuple(
        layer._replace(overrides=tuple(item for item in layer.overrides if not _is_open(item, known)))
        for layer in layers
    )


def left_open(layers: Iterable[Layer], known: Surface) -> Iterator[str]:
    """A sentence for each override that `dropped` takes out: where it was said, and what it means here."""
    for layer in layers:
        for item in layer.overrides:
            if _is_open(item, known):
                yield (
                    f"{item.origin}: {item.path.removeprefix('deepspeed.')} is auto, which DeepSpeed does not fill in: "
                    f"dsgen decides it as if nothing had been said there"
                )


def unfilled(config: Mapping[str, Any], known: Surface) -> tuple[str, ...]:
    """The keys of a config that say `auto` and have no such value, arguments of optimizer and schedule included."""
    return tuple(
        path
        for path, value in leaves(config)
        if value == AUTO and _unknown_there(path, known) and (known.key(path) is not None or path.startswith(_BUILT))
    )


def _is_open(item: Override, known: Surface) -> bool:
    prefix, _, path = item.path.partition(".")
    if item.value != AUTO or prefix != "deepspeed":
        return False
    return known.key(path) is not None and _unknown_there(path, known)


def _unknown_there(path: str, known: Surface) -> bool:
    """Whether a key has no `auto` of its own; so has none that the release does not read."""
    key = known.key(path)
    return key is None or (key.default != AUTO and AUTO not in key.enum)
