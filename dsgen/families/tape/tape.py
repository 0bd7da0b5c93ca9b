"""PyTorch's autograd without numbers: what a forward makes, what its nodes keep for backward, and how long.

A model's forward is written down as in Hugging Face's class; here it makes storages of a size instead of tensors. A
tape records them in order, and of each when something refers to it for the last time: an operator that reads it, a
forward that has it for an argument, a name of the class (`Names`), or a node that keeps it for backward. Which bytes
are alive when is computed from that (lifetimes.py): Python's own references play no part.

Every size has two numbers: bytes that are there whatever the micro-batch is, and bytes per sequence of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from dsgen.families.tape.graph import (
    ACTIVATIONS,
    GRADIENTS,
    LOGITS,
    TEMPORARIES,
    Backward,
    Delivery,
    Fitted,
    Leaf,
    Node,
    Storage,
    Tensor,
)
from dsgen.families.tape.moments import APART, AT, BEGUN, START, Position, Size

__all__ = [
    "ACTIVATIONS",
    "GRADIENTS",
    "LOGITS",
    "TEMPORARIES",
    "Fitted",
    "Leaf",
    "Names",
    "Node",
    "Tape",
    "Tensor",
    "forward",
]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class Tape:
    """A record of a forward, and of the backward that follows it.

    Attributes:
        vocabulary: The widths that mark logits.
        told: The positions in the block are recorded.
        steps: What happens, in order: a storage is made; another position is reached; a gradient is handed over.
        stop: The step by which everything has been made that is kept: a checkpoint runs forward again until there.
        seeds: Tensors whose gradients others have brought before backward begins.
        saves: What nodes keep, in the order in which they were made, each time; not of those for which it `stays`.
        whole: What runs is gathered whole: no matrix of it is fetched by itself, and its gradients are taken together,
            in order of this number and then of use; 0 outside such a module.
        works: It notes the work that operators are, as that of work.py does; this one does not.
    """

    works = False

    def __init__(self, vocabulary: tuple[int, ...] = (), told: bool = False) -> None:
        self.vocabulary = vocabulary
        self.told = told
        self.steps: list[Storage | Position | Delivery] = []
        self.stop = 0
        self.seeds: list[Tensor] = []
        self.saves: list[Storage] = []
        self.stays = False
        self.whole = 0
        self.position = START
        self.kind = ACTIVATIONS
        self._nodes = 0

    def make(self, rows: Size, width: int, item: int, kind: int | None = None) -> Tensor:
        """A new tensor."""
        size = width * item
        if kind is None:
            kind = LOGITS if width in self.vocabulary else self.kind
        steps = self.steps
        storage = Storage(kind, rows[0] * size, rows[1] * size, len(steps) + 1)
        steps.append(storage)
        return Tensor(rows, width, item, storage)

    def like(self, tensor: Tensor, item: int | None = None) -> Tensor:
        """A new tensor of the same shape."""
        return self.make(tensor.rows, tensor.width, item or tensor.item)

    def hold(self, *tensors: Tensor | None) -> None:
        """Refer to tensors until here, though no operator reads them."""
        now = len(self.steps)
        for tensor in tensors:
            if tensor is not None and tensor.storage is not None:
                tensor.storage.last = now

    def keep(self, *tensors: Tensor | None) -> list[Storage] | None:
        """What a node is to keep for backward of what there is by now."""
        if all(tensor is None for tensor in tensors):
            return None
        self.stop = len(self.steps)
        return [one.storage for one in tensors if one is not None and one.storage is not None]

    def node(self, made: Any, inputs: Sequence[Tensor], saved: list[Storage] | None, back: Backward) -> Any:
        """An operator is over: it has read its inputs, and made a tensor, or several.

        They are the results of a node, unless nothing asks for a gradient.
        """
        now, edges, asks = len(self.steps), [], False
        for one in inputs:
            if one.storage is not None:
                one.storage.last = now
            edges.append(one.edge)
            asks = asks or one.edge is not None
        if asks:
            self._join(made if isinstance(made, list) else [made], edges, saved, back)
        return made

    def _join(self, results: list[Tensor], edges: list[Any], saved: list[Storage] | None, back: Backward) -> None:
        node = Node(self.next(), edges, saved, back, len(results), self.position)
        if saved and not self.stays:
            self.saves += saved
        if self.whole:
            for edge in edges:
                if isinstance(edge, Leaf):
                    edge.late = self.whole, node.order
        for index, tensor in enumerate(results):
            tensor.edge = (node, index)

    def next(self) -> int:
        """The order of a new node."""
        self._nodes += 1
        return self._nodes

    @staticmethod
    def padded(rows: Size, step: int) -> Size:
        """Rows of every sequence rounded up to a multiple of `step`."""
        return -(-rows[0] // step) * step, -(-rows[1] // step) * step

    def _reach(self, position: Position) -> None:
        self.position = position
        self.steps.append(position)

    def fetch(self) -> None:
        """Note that a matrix of the block is used from now on; at stage 3 it may be gathered first."""
        if self.told and not self.whole:
            self._reach(Position(self.position.matrices, AT))

    def used(self) -> None:
        """Note that the matrix has been used."""
        if self.told and not self.whole:
            self._reach(Position(self.position.matrices + 1, APART))

    def begins(self) -> None:
        """Note that a norm begins: at stage 3 what comes behind it is fetched ahead."""
        if self.told and not self.whole:
            self.steps.append(Position(self.position.matrices, BEGUN))

    def left(self) -> None:
        """Note that a layer with an adapter is over: in backward it begins, and fetches ahead, when this is passed."""
        self.used()

    def between(self) -> None:
        """Note that the first of a module's two products is over, and that the second begins, of what is there."""
        if self.told:
            self._reach(Position(self.position.matrices + 1, AT))

    def together(self, tensor: Tensor) -> Tensor:
        """The input of a module whose late gradients are handed over when all of them are there."""
        made = Tensor(tensor.rows, tensor.width, tensor.item, tensor.storage)
        self.node(made, (tensor,), None, lambda gradient: [gradient])
        if made.edge is not None:
            made.edge[0].takes = True
        return made

    def moves(self, sort: str, *tensors: Tensor | None, operators: int = 1) -> None:
        """Note that a kernel bound by memory reads or writes these tensors whole."""

    def multiplies(
        self, m: Size, n: Size, k: Size, item: int, *, batch: Size = (1, 0), groups: int = 1, views: int = 0
    ) -> None:
        """Note a product of (m, k) and (k, n) matrices, which has been made, and the views dispatched around it."""
        made = self.steps[-1] if self.steps else None
        if isinstance(made, Storage):
            made.product = True

    def attends(self, phase: str, query: Tensor, key: Tensor, heads: int, kv_heads: int) -> None:
        """Note a fused attention."""

    def dispatches(self, operators: int = 0, views: int = 0) -> None:
        """Note what the host dispatches and the device does nothing for."""

    def seed(self, tensor: Tensor) -> None:
        """Let a gradient of a tensor wait when backward begins: later parts of the model use the tensor too."""
        if tensor.edge is not None:
            self.seeds.append(tensor)


class Names:
    """The local variables of a forward, as in the class: a tensor lives as long as one refers to it.

    A name refers to its tensor until it is given another, or the forward returns.
    """

    def __init__(self, tape: Tape) -> None:
        self.__dict__["_steps"] = tape.steps

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, tensor: Tensor | None) -> None:
        names = self.__dict__
        before = names.get(name)
        if before is not None and before.storage is not None:
            before.storage.last = len(names["_steps"])
        names[name] = tensor


def forward(
    function: Callable[Concatenate[Names, Tape, _Arguments], _Result],
) -> Callable[Concatenate[Tape, _Arguments], _Result]:
    """A forward, whose arguments live until it returns, as what its names then refer to does."""

    @functools.wraps(function)
    def run(tape: Tape, /, *arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        names = Names(tape)
        made = function(names, tape, *arguments, **options)
        now = len(tape.steps)
        for one in (*arguments, *names.__dict__.values()):
            if one.__class__ is Tensor and one.storage is not None:
                one.storage.last = now
        return made

    return run
