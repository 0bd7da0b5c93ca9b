"""What a model's forward holds under torch.no_grad, as in an evaluation: no node of autograd keeps anything."""

from __future__ import annotations

import functools
from typing import Any

from dsgen.families import family_of
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Block, Stacks
from dsgen.families.tape.lifetimes import opening, size
from dsgen.families.tape.moments import Activity
from dsgen.families.tape.tape import Tape, Tensor
from dsgen.memory.activations import course
from dsgen.memory.activations.blocks_in_order import blocks_in_order
from dsgen.memory.activations.course import NOTHING
from dsgen.memory.activations.recording import Recording
from dsgen.shapes.profiles import Model

__all__ = ["evaluates", "inference"]


def evaluates(model: Model) -> bool:
    """Whether a forward without gradients is counted: of one with an encoder it is not."""
    return not isinstance(family_of(model).forward, Stacks)


def inference(on: Execution, told: bool) -> tuple[Activity, ...]:
    """The moments of a forward with labels that can be its highest: in the embedding, in blocks, in the loss.

    Args:
        on: How the model runs when it is trained.
        told: Moments of blocks tell the way and the matrix at which they are.
    """
    return _inference(on._replace(no_grad=True, asks=False, drops=False), told)


@functools.lru_cache(maxsize=1024)
def _inference(on: Execution, told: bool) -> tuple[Activity, ...]:
    model, first = on.model, Tape()
    forward: Any = family_of(model).forward  # no Stacks: `evaluates`
    hidden, saved, read, referred = forward.before(first, on)
    before, _ = opening(first, hidden, *saved, *read, *referred)
    tables = [one.storage for one in (*saved, *read, *referred) if one.storage is not hidden.storage]
    during = size(tables)
    runs = [
        (name, count, _forward(forward.body(name), alike, hidden, (), told))
        for name, count, alike in blocks_in_order(on)
    ]
    vocabulary = (model.vocab_size, model.vocab_size // on.tp)
    last = _forward(forward.head, on, hidden, vocabulary, told)
    extra = size([hidden.storage]) if hidden in referred else NOTHING
    return course.forward(before, runs, last, during, during, extra)


def _forward(part: Block, on: Execution, hidden: Tensor, vocabulary: tuple[int, ...], told: bool) -> Recording:
    """A part of the model's forward, which asks for no gradient."""
    shape = Tensor(hidden.rows, hidden.width, hidden.item, None)
    body = functools.partial(_run, part, on)
    return Recording.run(body, shape, again=False, vocabulary=vocabulary, told=told)


def _run(part: Block, on: Execution, tape: Tape, hidden: Tensor) -> Tensor:
    return part(tape, on, hidden)
