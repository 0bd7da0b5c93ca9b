"""Storages, tensors and nodes of autograd's graph, as sizes: what a tape is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from dsgen.memory.activations.moments import Size

__all__ = [
    "ACTIVATIONS",
    "GRADIENTS",
    "LOGITS",
    "TEMPORARIES",
    "Fitted",
    "Leaf",
    "Ledger",
    "Node",
    "Promise",
    "Storage",
    "Tensor",
]

ACTIVATIONS, LOGITS, TEMPORARIES, GRADIENTS = range(4)


class Ledger(Protocol):
    """What storages come to and go from: a tape.

    Attributes:
        fixed, each: Bytes of each kind that are alive, and bytes per sequence.
        rising: Whether storages came since the last moment that was kept.
    """

    fixed: list[int]
    each: list[int]
    rising: bool

    def record(self) -> None:
        """Keep this moment if it is a high one."""


class Storage:
    """Bytes that live as long as anything refers to this object, as in PyTorch."""

    __slots__ = ("each", "fixed", "kind", "tape")

    def __init__(self, tape: Ledger, kind: int, fixed: int, each: int) -> None:
        self.tape, self.kind, self.fixed, self.each = tape, kind, fixed, each
        if kind == LOGITS:  # what is alive without them counts apart
            tape.record()
        tape.rising = True
        tape.fixed[kind] += fixed
        tape.each[kind] += each

    def __del__(self) -> None:
        tape = self.tape
        tape.record()
        tape.fixed[self.kind] -= self.fixed
        tape.each[self.kind] -= self.each


class Leaf:
    """A trained weight: where a gradient ends. `late` is its place where it waits for the rest of its module."""

    __slots__ = ("elements", "item", "late")

    def __init__(self, elements: int, item: int) -> None:
        self.elements, self.item = elements, item
        self.late: tuple[int, int] | None = None


class Fitted(NamedTuple):
    """A gradient made in another shape or type than its input's: PyTorch sums and casts it when the node is done."""

    made: Any
    rows: Size
    width: int
    item: int


class Node:
    """One operator of the graph: what it saved, where its gradients go, and how it makes them.

    Attributes:
        order: When it was made; of the nodes that are ready, the youngest runs first.
        edges: For every input the node (and which of its outputs) or leaf that gets its gradient; None for no gradient.
        saved: Tensors kept for backward.
        run: Makes the inputs' gradients from (saved, gradients of the outputs).
        outputs: How many results it has.
        place: Where it was made, as of a moment.
        takes: When it has run, the gradients that waited are handed over.
    """

    __slots__ = ("edges", "order", "outputs", "place", "run", "saved", "takes")

    def __init__(
        self,
        order: int,
        edges: Sequence[Any],
        saved: Any,
        run: Callable[..., Any],
        outputs: int = 1,
        place: int = 0,
    ) -> None:
        self.order, self.edges, self.saved, self.run, self.outputs = order, edges, saved, run, outputs
        self.place, self.takes = place, False


class Tensor:
    """A view of a storage: rows (fixed, per sequence) of `width` elements of `item` bytes each.

    `edge` is where its gradient goes: (node, index of the output), a Leaf, or None. A weight has no storage: the bytes
    of weights are counted elsewhere.
    """

    __slots__ = ("edge", "item", "rows", "storage", "width")

    def __init__(self, rows: Size, width: int, item: int, storage: Storage | None, edge: Any = None) -> None:
        self.rows, self.width, self.item, self.storage, self.edge = rows, width, item, storage, edge


class Promise(list[Tensor | None]):
    """What a node will have saved when it is asked for it."""
