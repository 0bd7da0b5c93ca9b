"""The forward of a model type, part by part, each a function that writes on a tape."""

from collections.abc import Callable
from typing import Any, NamedTuple

from dsgen.families.tape.execution import Execution
from dsgen.families.tape.moments import Size
from dsgen.families.tape.norms import Norm, rms_norm
from dsgen.families.tape.tape import Tape, Tensor

__all__ = ["Before", "Block", "Forward", "InStack", "Stacks"]

# Hidden states, what blocks save beside, what they only read, and what forward's variables refer to until its end.
Before = tuple[Tensor, list[Tensor], list[Tensor], list[Tensor]]
Block = Callable[[Tape, Execution, Tensor], Tensor]


class Forward(NamedTuple):
    """The forward of a decoder.

    Attributes:
        before: From token ids to the first block.
        dense: A block with a plain feed-forward part.
        sparse: A block with experts.
        head: From the last block to the loss.
        norm: The norm that its parts have in common.
        liger_norm: The same of Liger, whose other kernels then take the place of its parts; None where none is known.
        liger_head_norm: Liger's norm over a head, where that is another, of every release that knows the family.
        carries_weights: Forward refers to a block's attention weights, if it made them, until the next block has ended.
        every: Every so many-th block is `other`; 0 where none is.
        other: A block that differs from `dense` in what it computes, not in its weights.
    """

    before: Callable[[Tape, Execution], Before]
    dense: Block
    sparse: Block
    head: Block
    norm: Norm = rms_norm
    liger_norm: Norm | None = None
    liger_head_norm: Norm | None = None
    carries_weights: bool = False
    every: int = 0
    other: Block | None = None

    def order(self, dense: int, sparse: int) -> list[tuple[str, int]]:
        """Names of the kinds of blocks, as they follow each other, and how many of each."""
        if not self.every:
            return [("dense", dense), ("sparse", sparse)]
        return [("dense", self.every - 1), ("other", 1)] * (dense // self.every) + [("dense", dense % self.every)]

    def body(self, name: str) -> Any:
        """The block of a kind."""
        return getattr(self, name)


class InStack(NamedTuple):
    """Which block of two stacks it is.

    Attributes:
        decodes: It is one of the decoder.
        first: It is the first of its stack, and makes what the others add to their scores.
        last: It is the last: its backward is the first to make gradients of what all of them read.
        again: It runs again in backward, and the plain bias of the cross-attention asks for a gradient.
    """

    decodes: bool
    first: bool
    last: bool
    again: bool


class Stacks(NamedTuple):
    """The forward of a decoder behind an encoder.

    Attributes:
        before: The encoder's embedding, with its dropout and without.
        block: A block of either stack.
        between: From the encoder's last block to the decoder's first.
        head: From the decoder's last block to the loss.
        norm: Its norm.
        biases: Rows of a bias for every head and pair of tokens.
        saves_encoded: Whether keys or values save the encoder's output.
    """

    before: Callable[[Tape, Execution], tuple[Tensor, Tensor]]
    block: Callable[[Tape, Execution, Tensor, InStack], Tensor]
    between: Block
    head: Block
    norm: Norm
    biases: Callable[[Execution], Size]
    saves_encoded: Callable[[Execution], bool]
