"""The blocks of a decoder as they follow each other, and how each runs: with a window it may get a mask."""

import itertools
from typing import Any, NamedTuple

from dsgen.families import family_of
from dsgen.families.tape.execution import Execution

__all__ = ["EqualBlocks", "blocks_in_order"]


class EqualBlocks(NamedTuple):
    """Blocks that follow each other and run alike.

    Attributes:
        name: dense, sparse (a mixture of experts) or other.
        repeats: How many.
        on: How they run.
    """

    name: str
    repeats: int
    on: Execution

    @property
    def kind(self) -> tuple[str, bool]:
        """What is the same of equal blocks wherever they are."""
        return self.name, self.on.masked


def blocks_in_order(on: Execution) -> list[EqualBlocks]:
    """The blocks of a model that runs so; where sdpa gets a mask for a window, blocks with one are apart."""
    model, family, made, place = on.model, family_of(on.model), list[EqualBlocks](), 0
    forward: Any = family.forward  # no Stacks
    dense = model.dense_layers if model.experts else model.layers
    for name, repeats in forward.order(dense, model.layers - dense):
        places = range(place, place + repeats)
        for narrow, alike in itertools.groupby(places, lambda block: on.windowed and family.windowed(block)):
            made.append(EqualBlocks(name, len([*alike]), on._replace(masked=True) if narrow else on))
        place += repeats
    return made
