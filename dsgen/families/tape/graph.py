"""Storages, tensors and nodes of autograd's graph, as sizes: what a tape is made of."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dsgen.families.tape.moments import START, Position, Size

__all__ = [
    "ACTIVATIONS",
    "BACKWARD_PASS",
    "COPY",
    "DEQUANTIZATION",
    "EMBEDDING",
    "FORWARD_PASS",
    "GRADIENTS",
    "LOGITS",
    "MIXED",
    "NORM",
    "SOFTMAX",
    "STREAM",
    "TEMPORARIES",
    "Delivery",
    "Fitted",
    "Leaf",
    "Node",
    "Storage",
    "Tensor",
]

ACTIVATIONS, LOGITS, TEMPORARIES, GRADIENTS = range(4)

# Sorts of kernels that are bound by memory: one element after the other; over rows (norms, sums, the best of a row);
# softmax; rows picked by index; layouts (copies, joins, zeros); 4-bit weights made into 16 bits.
STREAM, NORM, SOFTMAX = "stream", "norm", "softmax"
EMBEDDING, COPY, DEQUANTIZATION, MIXED = "embedding", "copy", "dequantization", "mixed"
FORWARD_PASS, BACKWARD_PASS = "forward", "backward"  # of attention


class Storage:
    """Bytes, and how long they are referred to, each time as a number of steps of the tape.

    Attributes:
        kind: ACTIVATIONS, LOGITS, TEMPORARIES or GRADIENTS.
        fixed, each: Bytes, and bytes per sequence.
        last: Steps after which no operator reads them and no name refers to them.
        kept: Steps after which no node keeps them for its backward; 0 if none does.
        again: The same under checkpointing, where they are made again for that.
        needed: Steps before the last of these nodes runs, which was the first to keep them.
        until: Steps after which the others have run; 0 where there are none.
        returns: They come back from the node's RAM.
        product: Whether they are the result of a product of matrices.
    """

    __slots__ = ("again", "each", "fixed", "kept", "kind", "last", "needed", "product", "returns", "until")

    def __init__(self, kind: int, fixed: int, each: int, last: int) -> None:
        self.kind, self.fixed, self.each, self.last = kind, fixed, each, last
        self.kept = self.again = self.needed = self.until = 0
        self.product = self.returns = False


class Delivery(NamedTuple):
    """A step: autograd hands over a weight's gradient, which is no longer its own from then on."""

    gradient: Storage


class Leaf:
    """A trained weight: where a gradient ends. `late` is its turn where it waits for the rest of its module."""

    __slots__ = ("elements", "item", "late")

    def __init__(self, elements: int, item: int) -> None:
        self.elements, self.item = elements, item
        self.late: tuple[int, int] | None = None


class Tensor:
    """A view of a storage: rows (fixed, per sequence) of `width` elements of `item` bytes each.

    `edge` is where its gradient goes: (node, index of the output), a Leaf, or None. A weight has no storage: the bytes
    of weights are counted elsewhere.
    """

    __slots__ = ("edge", "item", "rows", "storage", "width")

    def __init__(self, rows: Size, width: int, item: int, storage: Storage | None, edge: Any = None) -> None:
        self.rows, self.width, self.item, self.storage, self.edge = rows, width, item, storage, edge


class Fitted(NamedTuple):
    """A gradient made in another shape or type than its input's: PyTorch sums and casts it when the node is done."""

    made: Tensor
    into: Tensor


# What a node's backward gives for each of its inputs, from the gradients of its outputs.
Backward = Callable[..., list[Any]]


class Node:
    """One operator of the graph: what it keeps, where its gradients go, and how it makes them.

    Attributes:
        order: When it was made; of the nodes that are ready, the youngest runs first.
        edges: For every input the node (and which of its outputs) or leaf that gets its gradient; None for no gradient.
        saved: Storages kept for backward; None where nothing is kept, not even a weight.
        back: Makes the inputs' gradients from those of the outputs.
        outputs: How many results it has.
        position: Where it was made.
        takes: When it has run, the gradients that waited are handed over.
    """

    __slots__ = ("back", "edges", "order", "outputs", "position", "saved", "takes")

    def __init__(
        self,
        order: int,
        edges: Sequence[Any],
        saved: list[Storage] | None,
        back: Backward,
        outputs: int = 1,
        position: Position = START,
    ) -> None:
        self.order, self.edges, self.saved, self.back, self.outputs = order, edges, saved, back, outputs
        self.position, self.takes = position, False
