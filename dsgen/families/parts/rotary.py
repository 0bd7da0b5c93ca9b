"""Rotary positions: sizes on a tape."""

from __future__ import annotations

from dsgen.families.tape import operators as op
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.graph import COPY, EMBEDDING, NORM, STREAM
from dsgen.families.tape.tape import Tape, Tensor

__all__ = ["masks_of", "note_mask", "note_positions", "note_tables", "rotate", "rotated_part", "turned_pair"]


def rotate(tape: Tape, tensor: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """`(q * cos) + (rotate_half(q) * sin)`."""
    one = op.mul(tape, tensor, cosine)
    other = op.mul(tape, _rotate_half(tape, tensor), sine)
    return op.add(tape, one, other)


def _rotate_half(tape: Tape, tensor: Tensor) -> Tensor:
    first = op.part(tape, tensor, tensor.width // 2)
    second = op.part(tape, tensor, tensor.width // 2)
    return op.cat(tape, op.neg(tape, second), first)


def turned_pair(tape: Tape, first: Tensor, second: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """`cat((a * cos - b * sin, b * cos + a * sin))`."""
    left = op.sub(tape, op.mul(tape, first, cosine), op.mul(tape, second, sine))
    right = op.add(tape, op.mul(tape, second, cosine), op.mul(tape, first, sine))
    made = op.cat(tape, left, right)
    tape.hold(first, second)
    return made


def note_positions(tape: Tape, on: Execution, masks: int = 1) -> None:
    """Note the work on position ids: counted up, and for each mask looked through for sequences packed into one."""
    ids = Tensor(on.rows, 1, op.INDEX, None)
    mask = Tensor(on.rows, 1, op.MASK, None)
    counted = Tensor((on.seq_len, 0), 1, op.INDEX, None)
    tape.moves(COPY, counted)
    tape.moves(STREAM, counted, counted)
    tape.dispatches(views=1)
    for _ in range(masks):
        tape.moves(STREAM, Tensor((0, 2), 1, op.INDEX, None))
        tape.moves(COPY, ids, ids)
        tape.moves(STREAM, ids, ids, ids)
        tape.moves(STREAM, ids, mask)
        tape.moves(NORM, mask, ids)
        tape.dispatches(views=4)


def masks_of(tape: Tape, on: Execution, masks: int = 1) -> list[Tensor]:
    """The masks that attention gets: as numbers to add where it is eager, of bools where sdpa has one. That of a window
    is the same of every sequence."""
    if on.windowed:
        return [tape.make((on.seq_len, 0), on.seq_len, op.MASK)]
    if not (on.eager or on.masked):
        return []
    return [tape.make(on.rows, on.seq_len, on.item if on.eager else op.MASK) for _ in range(masks)]


def note_mask(tape: Tape, on: Execution) -> None:
    """Note the work on a mask: which tokens each may see, and for eager attention that as numbers to add."""
    one = Tensor((on.seq_len, 0), on.seq_len, op.MASK, None)
    seen = one if on.windowed else Tensor(on.rows, on.seq_len, op.MASK, None)
    tokens = Tensor((on.seq_len, 0), 1, op.INDEX, None)
    for _ in range(2):
        tape.moves(COPY, tokens)  # counted up
        tape.moves(STREAM, tokens, tokens)
    for _ in range(4):
        tape.moves(EMBEDDING, tokens, tokens)
    tape.dispatches(operators=5)
    tape.moves(STREAM, one, one)  # the past
    tape.moves(STREAM, seen)  # the same one of packed sequences
    tape.moves(STREAM, one, seen)
    tape.moves(STREAM, seen, seen, seen)
    if on.eager:
        tape.moves(STREAM, seen, Tensor(on.rows, on.seq_len, on.item, None))
    tape.dispatches(views=10)


def note_tables(tape: Tape, on: Execution, size: int, item: int) -> None:
    """Note the work on a pair of rope tables (LlamaRotaryEmbedding): angles, joined with themselves, and cast."""
    ids = Tensor((on.seq_len, 0), 1, op.INDEX, None)
    wide = Tensor((on.seq_len, 0), 1, op.FP32, None)
    angles = Tensor((on.seq_len, 0), size // 2, op.FP32, None)
    table = Tensor((on.seq_len, 0), size, op.FP32, None)
    made = Tensor((on.seq_len, 0), size, item, None)
    tape.moves(STREAM, ids, wide)
    tape.moves(STREAM, wide, angles)
    tape.moves(COPY, angles, angles, table)
    for _ in range(4):  # cosine and sine, each times a number
        tape.moves(STREAM, table, table)
    tape.dispatches(views=2)
    if item != op.FP32:
        tape.moves(STREAM, Tensor((1, 0), size // 2, item, None), Tensor((1, 0), size // 2, op.FP32, None))
        tape.moves(STREAM, table, made)
        tape.moves(STREAM, table, made)


def rotated_part(tape: Tape, tensor: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The part of all heads that is rotated, and the rest."""
    return op.part(tape, tensor, width), op.part(tape, tensor, tensor.width - width)
