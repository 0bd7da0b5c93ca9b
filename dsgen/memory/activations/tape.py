"""PyTorch's autograd without numbers: which bytes are alive while operators run forward, and then backward.

A model's forward is written down as in Hugging Face's class, with the same local variables; here it makes storages of a
size instead of tensors. What a node saves for backward, in which order gradients are made and when each is dropped are
PyTorch's rules, so what lives at any moment follows and nothing is fitted. Source: torch/csrc/autograd/engine.cpp and
tools/autograd/derivatives.yaml of PyTorch 2.13.

Every size has two numbers: bytes that are there whatever the micro-batch is, and bytes per sequence of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from dsgen.memory.activations.graph import (
    ACTIVATIONS,
    GRADIENTS,
    LOGITS,
    TEMPORARIES,
    Fitted,
    Leaf,
    Node,
    Promise,
    Storage,
    Tensor,
)
from dsgen.memory.activations.moments import AGAIN, BACKWARD, FORWARD, Moment, Size

__all__ = [
    "ACTIVATIONS",
    "GRADIENTS",
    "LOGITS",
    "TEMPORARIES",
    "Fitted",
    "Leaf",
    "Node",
    "Tape",
    "Tensor",
]


class Tape:
    """A run: sizes by kind while storages come and go, and every moment before one goes.

    Attributes:
        again: Under checkpointing, what runs the body once more; set while its first run and until its second.
        told: Moments tell the way and the matrix at which they are.
        whole: What runs is gathered whole: no matrix of it is fetched by itself, and its gradients are taken together,
            in order of this number and then of use; 0 outside such a module.
    """

    def __init__(self, vocabulary: tuple[int, ...] = (), told: bool = False) -> None:
        self.vocabulary = vocabulary
        self.told = told
        self.whole = 0
        self.way, self.place = FORWARD, 0
        self.last = 0
        self.fixed = [0, 0, 0, 0]
        self.each = [0, 0, 0, 0]
        self.handed = 0
        self.moments: list[Moment] = []
        self.rising = False  # whether storages came since the last moment
        self.arrivals: list[Moment] = []  # when each weight gradient is handed over; it counts as fresh still
        self.kind = ACTIVATIONS
        self.again: Callable[[], Any] | None = None
        self.promises: list[Promise] = []
        self.seeds: list[tuple[Node, Size, int, int]] = []  # gradients that others have brought before
        self.late: list[tuple[tuple[int, int], Storage]] = []  # gradients that wait until all of their module's are
        self._kept: int | None = None  # promises kept so far while the body runs again
        self._count = 0

    def born(self, rows: Size, width: int, item: int, kind: int | None = None) -> Tensor:
        """A new tensor."""
        if self._kept is not None and self._kept == len(self.promises):
            return Tensor(rows, width, item, None)
        size = width * item
        if kind is None:
            kind = LOGITS if width in self.vocabulary else self.kind
        return Tensor(rows, width, item, Storage(self, kind, rows[0] * size, rows[1] * size))

    def record(self) -> None:
        """Keep this moment if it is a high one: storages came, and now something changes."""
        if self.rising:
            self.moments.append(self._now())
            self.rising = False

    def recorded(self) -> list[Moment]:
        """The moments until now, which are dropped here."""
        self.record()
        found, self.moments = self.moments, []
        return found

    def _now(self) -> Moment:
        fixed, each = self.fixed, self.each
        sizes = (fixed[0], each[0]), (fixed[1], each[1]), (fixed[2], each[2])
        return Moment(*sizes, self.handed, fixed[3], "", 0, self.last, self.way, self.place)

    @staticmethod
    def padded(rows: Size, step: int) -> Size:
        """Rows of every sequence rounded up to a multiple of `step`."""
        return -(-rows[0] // step) * step, -(-rows[1] // step) * step

    def node(self, made: Tensor | list[Tensor], edges: Sequence[Any], saved: Any, run: Callable[..., Any]) -> Any:
        """Make a tensor, or several, the result of a node, unless nothing asks for a gradient."""
        results = made if isinstance(made, list) else [made]
        if any(edge is not None for edge in edges):
            node = Node(self.next(), edges, saved, run, len(results), self.place)
            for edge in edges if self.whole else ():
                if isinstance(edge, Leaf):
                    edge.late = self.whole, node.order
            for index, tensor in enumerate(results):
                tensor.edge = (node, index)
        return made

    def fetch(self) -> None:
        """Note that a matrix of the block is used from now on; at stage 3 it may be gathered first."""
        if self.told and not self.whole:
            self.record()
            self.place += 1
            self.moments.append(self._now())
            self.place += 1

    def used(self) -> None:
        """Note that the matrix has been used."""
        if self.told and not self.whole:
            self.record()
            self.place += 1

    def left(self) -> None:
        """Note that a layer with an adapter is over: in backward it begins, and fetches ahead, when this is passed."""
        if self.told and not self.whole:
            self.record()
            self.place += 3

    def between(self) -> None:
        """Note that the first of a module's two products is over, and that the second begins, of what is there."""
        if self.told:
            self.record()
            self.place += 2
            self.moments.append(self._now())
            self.place += 1

    def turn(self) -> None:
        """Note that backward begins."""
        if self.told:
            self.record()
            self.way = BACKWARD

    def next(self) -> int:
        """The order of a new node."""
        self._count += 1
        return self._count

    def keep(self, *tensors: Tensor | None) -> list[Tensor | None]:
        """Save tensors for backward; under checkpointing, promise to have them by then."""
        if all(tensor is None for tensor in tensors):
            return []
        if self.again is not None and self._kept is None:
            self.promises.append(Promise())
            return self.promises[-1]
        kept = [None if one is None else Tensor(one.rows, one.width, one.item, one.storage) for one in tensors]
        if self._kept is None:
            return kept
        if self._kept < len(self.promises):
            self.promises[self._kept].extend(kept)
            self._kept += 1
        return []

    def _keep_promises(self) -> None:
        """Run the body again, until everything is there that its first run promised (torch.utils.checkpoint)."""
        kind, self.kind, self._kept = self.kind, ACTIVATIONS, 0
        self.record()
        place, self.place = self.place, 0
        self.way = AGAIN if self.told else FORWARD
        if self.again is not None:
            self.again()
        self.kind, self._kept, self.again = kind, None, None
        self.turn()
        self.place = place
        self.promises.clear()

    def together(self, tensor: Tensor) -> Tensor:
        """The input of a module whose late gradients are handed over when all of them are there."""
        made = Tensor(tensor.rows, tensor.width, tensor.item, tensor.storage, tensor.edge)
        self.node(made, (tensor.edge,), None, lambda _, gradient: [gradient])
        if made.edge is not None:
            made.edge[0].takes = True
        return made

    def seed(self, tensor: Tensor) -> None:
        """Let a gradient of a tensor wait when backward begins: later parts of the model use the tensor too."""
        if tensor.edge is not None and self._kept is None:
            self.seeds.append((tensor.edge[0], tensor.rows, tensor.width, tensor.item))

    def alive(self, kind: int = ACTIVATIONS) -> Size:
        """Bytes of one kind that are alive now."""
        return self.fixed[kind], self.each[kind]

    def backward(self, root: Node, gradients: list[Tensor | None]) -> None:
        """Run backward from a node, as torch/csrc/autograd/engine.cpp orders it.

        Args:
            root: The node of the result.
            gradients: The gradients of its outputs; the list is used up, so that each lives no longer than it must.
        """
        waiting = _dependencies(root)
        buffers: dict[Node, list[Tensor | None]] = {root: list(gradients)}
        gradients.clear()
        for target, rows, width, item in self.seeds:
            buffers[target] = [self.born(rows, width, item)]
        self.seeds.clear()
        ready = [(-root.order, root)]
        while ready:
            node = heapq.heappop(ready)[1]
            if self.place != node.place:
                self.record()
                if node.place % 3 == 2:
                    self.place = node.place - 1
                    self.moments.append(self._now())
                self.place = node.place
            if self.again is not None and isinstance(node.saved, Promise):
                self._keep_promises()
            given = buffers.pop(node)
            made = node.run(node.saved, *given)
            if isinstance(node.saved, Promise):  # a checkpoint drops what it made again as soon as it is asked for it
                node.saved = None
            one: Any
            for place, one in enumerate(made):  # validate_outputs
                if isinstance(one, Fitted):
                    kind = GRADIENTS if isinstance(node.edges[place], Leaf) else None
                    same = one.rows == one.made.rows and one.width == one.made.width
                    fitted = one.made if same else self.born(one.rows, one.width, one.made.item, kind)
                    made[place] = fitted if fitted.item == one.item else self.born(one.rows, one.width, one.item, kind)
                    fitted = None
            one = node.saved = None
            given = []
            leaves: list[Storage] = []  # AccumulateGrad is a node of its own, and runs when this one is done
            for place, edge in enumerate(node.edges):
                got, made[place] = made[place], None
                if edge is None:
                    continue
                if isinstance(edge, Leaf):
                    if got is not None and got.storage is not None:
                        if edge.late:
                            self.late.append((edge.late, got.storage))
                        else:
                            leaves.append(got.storage)
                    got = None
                    continue
                target, index = edge
                buffer = buffers.get(target)
                if buffer is None:
                    buffer = buffers[target] = [None] * target.outputs
                if got is not None:
                    before = buffer[index]
                    buffer[index] = got if before is None else self.born(got.rows, got.width, got.item)
                    before = None
                got = buffer = None  # no name may hold on to what the next node uses up
                waiting[target] -= 1
                if not waiting[target]:
                    heapq.heappush(ready, (-target.order, target))
            if node.takes:
                self.late.sort(key=lambda one: one[0])
                while self.late:
                    leaves.append(self.late.pop(0)[1])
            while leaves:
                self.record()
                self.arrivals.append(self._now())
                self.last = leaves.pop(0).fixed
                self.handed += self.last


def _dependencies(root: Node) -> dict[Node, int]:
    """How many gradients every node waits for."""
    counts: dict[Node, int] = {}
    stack = [root]
    seen = {root}
    while stack:
        for edge in stack.pop().edges:
            if isinstance(edge, tuple):
                target = edge[0]
                counts[target] = counts.get(target, 0) + 1
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
    return counts
