""" "auto" where DeepSpeed has none: Hugging Face's word for "fill it in", which here leaves the key to the planner."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from dsgen.deepspeed.surface import Surface
from dsgen.shapes.layers import Layer, Override

__all__ = ["dropped"]


def dropped(layers: Iterable[Layer], known: Surface) -> tuple[Layer, ...]:
    """The layers without the overrides that only say `auto`; a key that knows the word keeps it."""
    return tuple(
        attrs.evolve(layer, overrides=tuple(item for item in layer.overrides if not _left_open(item, known)))
        for layer in layers
    )


def _left_open(item: Override, known: Surface) -> bool:
    if item.value != "auto" or not item.path.startswith("deepspeed."):
        return False
    key = known.key(item.path.removeprefix("deepspeed."))
    return key is not None and key.default != "auto" and "auto" not in key.enum
