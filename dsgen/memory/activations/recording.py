"""A part of a model on a tape of its own: what it keeps, and its highest moments forward and backward."""

from collections.abc import Callable
from typing import NamedTuple

from dsgen.families.tape.engine import backward
from dsgen.families.tape.lifetimes import Record
from dsgen.families.tape.moments import Activity, Size, front
from dsgen.families.tape.tape import TEMPORARIES, Node, Tape, Tensor

__all__ = ["Recording", "record"]


class Recording(NamedTuple):
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
    forward: tuple[Activity, ...]
    backward: tuple[Activity, ...]
    arrivals: tuple[Activity, ...]
    asks: bool = True

    @classmethod
    def run(
        cls,
        body: Callable[[Tape, Tensor], Tensor],
        shape: Tensor,
        *,
        again: bool,
        vocabulary: tuple[int, ...] = (),
        told: bool = False,
        shrinks: bool = False,
    ) -> "Recording":
        """Run a body forward and backward.

        Args:
            body: The part of the model's forward.
            shape: What goes in: its size, and whether it asks for a gradient.
            again: The body keeps its input only and runs forward once more before its backward.
            vocabulary: The widths that mark logits. They mark the head as well: nobody else refers to its input, which
                it drops on the way.
            told: Moments tell the way and the position at which they are.
            shrinks: As for `front`.
        """
        return cls.of(record(body, shape, vocabulary=vocabulary, told=told), again=again, shrinks=shrinks)

    @classmethod
    def of(
        cls, run: Record, *, again: bool, reentrant: bool = False, shrinks: bool = False, behind: Size = (0, 0)
    ) -> "Recording":
        """What a recorded run holds, with checkpointing (`again`), of the `reentrant` kind or not, or without.

        `behind` is as for `Record.again`.
        """
        lived = run.again(reentrant, behind) if again else run.once()
        kept, logits, gradients, keeps_input, handed, forward, back, arrivals = lived
        asks = len(run.steps) > run.forward
        moments = front(forward), front(back, shrinks), tuple(arrivals)
        return cls(kept, logits, gradients, keeps_input, handed, *moments, asks)


def record(
    body: Callable[[Tape, Tensor], Tensor], shape: Tensor, *, vocabulary: tuple[int, ...] = (), told: bool = False
) -> Record:
    """Record a body's forward and backward; see `Stretch.run`."""
    tape = Tape(vocabulary, told)
    hidden = tape.make(shape.rows, shape.width, shape.item, tape.kind)
    entered: list[Tensor] = []  # the gradients of what goes in
    if shape.edge is not None:

        def enter(*given: Tensor) -> list[Tensor]:
            entered.extend(given)
            return []

        hidden.edge = (Node(0, (), None, enter), 0)
    made = body(tape, hidden)
    tape.hold(made, None if vocabulary else hidden)
    forward = len(tape.steps)
    tape.kind, saves = TEMPORARIES, tape.saves[:]
    asked = backward(tape, made) if made.edge is not None else forward
    return Record(tape.steps, forward, tape.stop, asked, told, hidden.storage, made.storage, entered, saves)
