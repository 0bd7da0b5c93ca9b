"""Rotary positions: sizes on a tape."""

from __future__ import annotations

from dsgen.families.tape import operators as op
from dsgen.families.tape.tape import Tape, Tensor

__all__ = ["rotate", "rotated_part", "turned_pair"]


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


def rotated_part(tape: Tape, tensor: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The part of all heads that is rotated, and the rest."""
    return op.part(tape, tensor, width), op.part(tape, tensor, tensor.width - width)
