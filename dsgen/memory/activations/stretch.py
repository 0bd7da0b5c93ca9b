"""A part of a model on a tape of its own: what it keeps, and its highest moments forward and backward."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from dsgen.memory.activations.moments import Moment, Size, front
from dsgen.memory.activations.tape import ACTIVATIONS, GRADIENTS, LOGITS, TEMPORARIES, Node, Tape, Tensor

__all__ = ["Stretch"]


class Stretch(NamedTuple):
    """One block, or what comes after the blocks.

    Attributes:
        kept: Activations alive from the end of its forward to its backward, its input among them if it is kept.
        kept_logits: The same of what has the vocabulary's width.
        kept_gradients: Bytes of weight gradients that its forward makes.
        keeps_input: Whether its input is.
        gradients: Bytes of the weight gradients that its backward makes.
        forward: Moments that can be the highest of its forward.
        backward: The same of its backward; under checkpointing from the second forward on.
        arrivals: Every moment of it at which a weight gradient is handed over, which is fresh until then.
        asks: Whether what it makes asks for a gradient; where it does not, there is no backward.
    """

    kept: Size
    kept_logits: Size
    kept_gradients: int
    keeps_input: bool
    gradients: int
    forward: tuple[Moment, ...]
    backward: tuple[Moment, ...]
    arrivals: tuple[Moment, ...]
    asks: bool = True

    @classmethod
    def run(
        cls,
        body: Callable[[Tape, Any], Tensor],
        shape: Tensor,
        *,
        again: bool,
        vocabulary: tuple[int, ...] = (),
        told: bool = False,
        shrinks: bool = False,
    ) -> Stretch:
        """Run a body forward and backward.

        Args:
            body: The part of the model's forward.
            shape: What goes in: its size, and whether it asks for a gradient.
            again: The body keeps its input only and runs forward once more before its backward
                (torch.utils.checkpoint, use_reentrant=False).
            vocabulary: The widths that mark logits. They mark the head as well, which drops its input on the way: it
                gets it in a list.
            told: Moments tell the way and the matrix at which they are.
            shrinks: As for `front`.
        """
        tape = Tape(vocabulary, told)
        hidden = tape.born(shape.rows, shape.width, shape.item, ACTIVATIONS)
        if shape.edge is not None:
            hidden.edge = (Node(0, (), None, lambda *_: []), 0)
        if again:
            tape.again = functools.partial(body, tape, hidden)
        held = [hidden]
        if vocabulary:
            del hidden
        out = body(tape, held) if vocabulary else body(tape, hidden)
        forward = front(tape.recorded())
        with_input = tape.alive()
        if not again:
            hidden = out
            held.clear()
        keeps_input = tape.alive() == with_input
        out.storage = None
        kept, kept_logits, kept_gradients = tape.alive(), tape.alive(LOGITS), tape.alive(GRADIENTS)[0]
        tape.kind = TEMPORARIES
        tape.turn()
        if out.edge is None:
            return cls(kept, kept_logits, kept_gradients, keeps_input, 0, forward, (), (), False)
        gradients: list[Tensor | None] = [tape.born(out.rows, out.width, out.item)]
        root = out.edge[0]
        del out, hidden
        tape.backward(root, gradients)
        held.clear()  # a checkpoint refers to its input until all of it is done
        return cls(
            kept,
            kept_logits,
            kept_gradients,
            keeps_input,
            tape.handed,
            forward,
            front(tape.recorded(), shrinks),
            tuple(tape.arrivals),
        )
