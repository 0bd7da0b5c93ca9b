"""Learned biases of the distances between tokens, which all blocks of a stack add to their scores: sizes on a tape.

A table of biases, one for each distance, is looked up in the first block of a stack. So a block reads what is counted
elsewhere, and adds to gradients that the blocks behind it have made: those of the biases, and in a decoder those of the
encoder's output.

Source: transformers 5.23, models/t5/modeling_t5.py. Names are those of the class.
"""

from __future__ import annotations

from typing import Any

from dsgen.families.tape import operators as op
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import InStack
from dsgen.families.tape.graph import EMBEDDING, STREAM
from dsgen.families.tape.moments import Size
from dsgen.families.tape.tape import Node, Tape, Tensor

__all__ = ["biases", "distance_biases", "plain_biases", "read_before"]


def biases(on: Execution) -> Size:
    """Rows of a bias for every head and pair of tokens, one of all sequences; `width` is that of the other tokens."""
    rows = on.heads * on.seq_len
    return (0, rows) if on.single else (rows, 0)


def read_before(tape: Tape, rows: Size, width: int, item: int, number: int, place: InStack) -> Tensor:
    """What is made before the block, and counted there: its gradient is added to that of the blocks behind."""
    made = Tensor(rows, width, item, None, (Node(-number, (), None, lambda _: []), 0))
    if not place.last:
        tape.seed(made)
    return made


def distance_biases(tape: Tape, on: Execution, place: InStack) -> Tensor:
    """The biases of all heads: looked up in the first block (compute_bias), and read in the others."""
    rows, tokens = biases(on), on.seq_len
    kernel = on.weight(on.model.relative_buckets * on.model.attention_heads)
    if not place.first:
        return (
            read_before(tape, rows, tokens, on.item, 2, place) if kernel.edge else Tensor(rows, tokens, on.item, None)
        )
    pairs = (tokens, 0)
    distance = tape.make(pairs, tokens, op.INDEX)
    ids = _buckets(tape, pairs, tokens, place.decodes)
    saved = tape.keep(ids) if kernel.edge else None
    made = tape.make(rows, tokens, on.item)
    tape.hold(distance, ids)
    tape.moves(EMBEDDING, made, made)

    def back(gradient: Tensor) -> list[Any]:
        result = op.gradient_of(tape, kernel)
        tape.moves(EMBEDDING, gradient, result)
        return [result]

    tape.node(made, (kernel,), saved, back)
    if not place.last:
        tape.seed(made)
    return made


def _buckets(tape: Tape, rows: Size, tokens: int, causal: bool) -> Tensor:
    """_relative_position_bucket, where it holds most: the distances' logarithms as they become whole numbers."""

    def new(item: int, *read: Tensor) -> Tensor:
        made = tape.make(rows, tokens, item)
        tape.moves(STREAM, *(read or (made,)), made)
        tape.hold(*read)
        return made

    buckets = None if causal else new(op.INDEX)
    position, small = new(op.INDEX), new(op.MASK)
    large = new(op.INDEX, new(op.FP32))
    raised = new(op.INDEX, large)
    full = new(op.INDEX)
    least = new(op.INDEX, full, raised)
    chosen = new(op.INDEX)
    if buckets is None:  # 0 + where(...): a copy
        buckets = new(op.INDEX, chosen)
    tape.hold(position, small, least)
    return buckets


def plain_biases(tape: Tape, on: Execution, place: InStack) -> Tensor:
    """Zeros for the cross-attention, made in the first block; under checkpointing the class has them ask."""
    rows, tokens = biases(on), on.source_len
    if place.again:
        made = read_before(tape, rows, tokens, on.item, 3, place)
        if place.first:
            made.storage = tape.make(rows, tokens, on.item).storage
        return made
    return tape.make(rows, tokens, on.item) if place.first else Tensor(rows, tokens, on.item, None)
