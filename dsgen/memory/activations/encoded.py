"""Activations of a decoder behind an encoder: two stacks of blocks, and what lives from one to the other.

What lies between them counts as a block, as its tensors do (dsgen.families.parameters.stretches).
"""

from __future__ import annotations

from typing import Any

from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import InStack, Stacks
from dsgen.families.tape.lifetimes import opening
from dsgen.families.tape.lifetimes import size as bytes_of
from dsgen.families.tape.moments import Activity, Size
from dsgen.families.tape.operators import INDEX
from dsgen.families.tape.tape import Tape, Tensor
from dsgen.memory.activations import course
from dsgen.memory.activations.course import NOTHING, plus
from dsgen.memory.activations.recording import Recording
from dsgen.shapes.profiles import Model

__all__ = ["encoded", "in_stack", "kinds"]


def encoded(stacks: Stacks, on: Execution, target_len: int, *, checkpointing: bool, told: bool) -> dict[str, Any]:
    """The fields of Activations but its blocks, which are there as (name, number, stretch)."""
    model = on.model
    late_on = on._replace(seq_len=target_len, source_len=on.seq_len)
    first = Tape()
    hidden, embedded = stacks.before(first, on)
    shape = Tensor(hidden.rows, hidden.width, hidden.item, None, (True, 0))
    # Frozen embeddings ask for no gradient, unless checkpointing does.
    asked_for = hidden.edge is not None
    shapes = shape, Tensor(late_on.rows, hidden.width, hidden.item, None, (True, 0))
    size, target = ((0, length * on.hidden * on.item) for length in (on.seq_len, target_len))
    before, graph = opening(first, hidden, embedded)
    # Forward refers to what its dropout got.
    referred, target_referred = (size, target) if model.dropout else (NOTHING, NOTHING)
    rest = bytes_of(graph)  # what dropout keeps
    rest = plus(rest, referred) if on.asks else rest  # a leaf of autograd lives as long as the loss
    # What is added to scores: of the encoder, of the decoder, and of the decoder to what it reads of the encoder.
    bias = _bytes(stacks.biases(on), on.seq_len * on.item)
    own, zeros = (_bytes(stacks.biases(late_on), length * on.item) for length in (target_len, on.seq_len))
    mask = (0, target_len * target_len * on.item)
    source = NOTHING if stacks.saves_encoded(on) else size  # the encoder's output, to which forward refers
    names = kinds(model)
    runs: list[tuple[str, int, Recording]] = []
    forward: list[Size] = []
    behind: list[tuple[str, int, Recording]] = []  # with what lives beside them in backward
    # Checkpoints refer to the biases that their blocks read; those of the first block make their own.
    encoders = bias if checkpointing and model.encoder_layers > 1 else NOTHING
    decoders = own if checkpointing and model.layers > 1 else NOTHING
    for name, count in names:
        decodes, between, made = name.startswith("decoder"), name == "between", not name.endswith("first")
        given = shapes[decodes]
        given = given if asked_for or not name.endswith("first") else Tensor(given.rows, given.width, given.item, None)
        setting = late_on if decodes or between else on
        stretch = _run(stacks, setting, name, given, checkpointing, told)
        runs.append((name, count, stretch))
        beside = plus(target_referred, mask) if decodes else referred
        beside = plus(beside, plus(own, zeros) if decodes else bias, made)
        forward.append(plus(beside, plus(encoders, source), decodes))
        if not checkpointing:
            behind.append(runs[-1])
            continue
        # The zeros' leaf lives as long as the loss, and so does its gradient.
        held = plus(encoders if decodes or between else NOTHING, own if decodes else bias, made and not between)
        held = plus(held, zeros)
        late = NOTHING if decodes else zeros
        held = plus(held, mask) if decodes else held
        if on.asks:  # so do the decoder's embedding, and its gradient
            held, late = plus(held, target_referred if decodes else target), late if decodes else plus(late, target)
        behind.append((name, count, _beside(stretch, held, late)))
    ended = plus(plus(target_referred, source), plus(mask, plus(own, zeros)))
    all_held = plus(plus(encoders, decoders), plus(mask, zeros)) if checkpointing else NOTHING
    all_held = plus(all_held, target_referred) if on.asks else all_held
    forward.append(plus(ended, encoders))
    vocabulary = (model.vocab_size,)
    last = Recording.run(
        lambda tape, hidden: stacks.head(tape, late_on, hidden),
        shapes[True],
        again=False,
        vocabulary=vocabulary,
        told=told,
    )
    blocks = NOTHING
    for _, count, stretch in runs:
        blocks = plus(blocks, stretch.kept, count)
    leaf = model.vocab_size * on.hidden * on.item if on.method == "full" else 0
    asked = plus(zeros, plus(size, target), on.asks) if checkpointing else NOTHING
    ends = [
        Activity(asked, NOTHING, plus(asked, size), 0, leaf),
        Activity(asked, NOTHING, asked, 0, 2 * leaf),
    ]
    below = plus(rest, blocks)
    return {
        "inputs": (0, INDEX * sum({on.seq_len, target_len})),  # equal ones are one tensor in a simulation
        "asked": asked,
        "kept": plus(plus(below, last.kept), all_held),
        "kept_logits": last.kept_logits,
        "kept_gradients": last.kept_gradients,
        "outside": plus(plus(rest, last.kept), all_held),
        "tables": rest,
        "blocks": behind,
        "forward": course.forward(before, runs, last, rest, plus(NOTHING, all_held, -1), NOTHING, forward),
        "backward": course.backward(_beside(last, all_held, NOTHING), behind, below, ends, leaf, 0, True),
        "first": course.first(last, behind[-1][2], plus(below, all_held) if leaf else below, leaf),
    }


def kinds(model: Model) -> list[tuple[str, int]]:
    """Kinds of blocks as they follow each other, what is between the stacks among them, and how many of each."""
    return [*_stack("encoder", model.encoder_layers), ("between", 1), *_stack("decoder", model.layers)]


def in_stack(name: str, again: bool) -> InStack:
    """Where a block of a kind is."""
    only = name.endswith("only first")
    return InStack(name.startswith("decoder"), name.endswith("first"), only or name.endswith("last"), again)


def _stack(name: str, blocks: int) -> list[tuple[str, int]]:
    """Kinds of blocks of a stack, and how many of each."""
    if blocks == 1:
        return [(f"{name} only first", 1)]
    kinds = [(f"{name} first", 1), (name, blocks - 2), (f"{name} last", 1)]
    return [(kind, count) for kind, count in kinds if count]


def _run(stacks: Stacks, on: Execution, name: str, shape: Tensor, again: bool, told: bool) -> Recording:
    if name == "between":
        return Recording.run(
            lambda tape, hidden: stacks.between(tape, on, hidden), shape, again=False, told=told, shrinks=True
        )
    place = in_stack(name, again)
    return Recording.run(
        lambda tape, hidden: stacks.block(tape, on, hidden, place), shape, again=again, told=told, shrinks=True
    )


def _beside(stretch: Recording, held: Size, gradients: Size) -> Recording:
    """A stretch whose backward has more alive beside it, gradients of what others have made among that."""

    def placed(moments: tuple[Activity, ...]) -> tuple[Activity, ...]:
        return tuple(
            one._replace(activations=plus(one.activations, held), temporaries=plus(one.temporaries, gradients))
            for one in moments
        )

    return stretch._replace(backward=placed(stretch.backward), arrivals=placed(stretch.arrivals))


def _bytes(rows: Size, each: int) -> Size:
    return rows[0] * each, rows[1] * each
