"""Backward on a tape: nodes run as torch/csrc/autograd/engine.cpp of PyTorch 2.13 orders them."""

from __future__ import annotations

import heapq
from typing import Any

from dsgen.families.tape.graph import NORM, STREAM, Delivery, Fitted, Leaf, Node, Storage, Tensor
from dsgen.families.tape.tape import GRADIENTS, Tape

__all__ = ["backward", "reachable"]


def backward(tape: Tape, result: Tensor) -> int:
    """Record the backward of what a tape has recorded, from its result.

    Returns:
        The number of steps before the first node that keeps something: a checkpoint runs forward again then.
    """
    steps = tape.steps
    root = result.edge[0]
    buffers: dict[Node, list[Tensor | None]] = {root: [tape.like(result)]}
    waiting = _dependencies(result)
    for seed in tape.seeds:
        buffers[seed.edge[0]] = [tape.like(seed)]
    tape.seeds.clear()  # they would close a circle
    late: list[tuple[tuple[int, int], Storage]] = []  # gradients that wait until all of their module's are there
    asked = 0
    position = tape.position
    ready = [(-root.order, root)]
    while ready:
        node = heapq.heappop(ready)[1]
        if node.position != position:
            position = node.position
            steps.append(position)
        if not asked and node.saved is not None:
            asked = len(steps)
        given, begun = buffers.pop(node), len(steps)
        made = node.back(*given)
        ran = len(steps)
        _fit(tape, made, node)
        done = len(steps)
        for storage in node.saved or ():  # a checkpoint drops what it made again as soon as it is asked for it
            storage.again, storage.until, storage.kept, storage.needed = ran, storage.kept, done, begun
        tape.hold(*given)
        leaves: list[Storage] = []  # AccumulateGrad is a node of its own, and runs when this one is done
        for gradient, edge in zip(made, node.edges, strict=True):
            if gradient is not None:
                gradient.storage.last = len(steps)
            if edge is None:
                continue
            if isinstance(edge, Leaf):
                if gradient is not None and edge.late:
                    late.append((edge.late, gradient.storage))
                elif gradient is not None:
                    leaves.append(gradient.storage)
                continue
            target, index = edge
            buffer = buffers.setdefault(target, [None] * target.outputs)
            if gradient is not None:
                before = buffer[index]
                buffer[index] = gradient if before is None else _sum(tape, before, gradient)
                tape.hold(before, gradient)
            waiting[target] -= 1
            if not waiting[target]:
                heapq.heappush(ready, (-target.order, target))
        if node.takes:
            late.sort(key=lambda one: one[0])
            leaves += [storage for _, storage in late]
            late.clear()
        for storage in leaves:
            steps.append(Delivery(storage))
            storage.last = len(steps)
    return asked


def _sum(tape: Tape, one: Tensor, other: Tensor) -> Tensor:
    """Two gradients of one tensor, added."""
    made = tape.like(other)
    tape.moves(STREAM, one, other, made)
    return made


def _fit(tape: Tape, made: list[Any], node: Node) -> None:
    """Sum and cast gradients that have another shape or type than what they are for (validate_outputs)."""
    for index, one in enumerate(made):
        if one.__class__ is not Fitted:
            continue
        fitted, into = one
        if fitted.rows != into.rows or fitted.width != into.width:
            kind = GRADIENTS if isinstance(node.edges[index], Leaf) else None
            fitted = tape.make(into.rows, into.width, one.made.item, kind)
            if tape.works:
                _note_sum(tape, one.made, fitted)
            tape.hold(one.made)
        made[index] = fitted
        if fitted.item != into.item:
            kind = GRADIENTS if isinstance(node.edges[index], Leaf) else None
            made[index] = tape.make(into.rows, into.width, into.item, kind)
            tape.moves(STREAM, fitted, made[index])
            tape.hold(one.made, fitted)


def _note_sum(tape: Tape, whole: Tensor, fitted: Tensor) -> None:
    """A sum over rows or columns; nothing is done where the shape is another and the size is not."""
    if (whole.rows[0] * whole.width, whole.rows[1] * whole.width) != (
        fitted.rows[0] * fitted.width,
        fitted.rows[1] * fitted.width,
    ):
        tape.moves(NORM, whole, fitted)
        tape.dispatches(views=0 if fitted.rows[1] else 1)


def reachable(result: Tensor) -> list[Node]:
    """The nodes that backward from a result reaches, each once."""
    nodes = [] if result.edge is None else [result.edge[0]]
    seen = set(nodes)
    for node in nodes:
        for edge in node.edges:
            if isinstance(edge, tuple) and edge[0] not in seen:
                seen.add(edge[0])
                nodes.append(edge[0])
    return nodes


def _dependencies(result: Tensor) -> dict[Node, int]:
    """How many gradients every node waits for."""
    counts: dict[Node, int] = {}
    for node in reachable(result):
        for edge in node.edges:
            if isinstance(edge, tuple):
                counts[edge[0]] = counts.get(edge[0], 0) + 1
    return counts
