"""Activations of a decoder behind an encoder: two stacks of blocks, and what lives from one to the other.

What lies between them counts as a block, as its tensors do (dsgen.parameters.stretches).
"""

from __future__ import annotations

from typing import Any

from dsgen.memory.activations import course, t5
from dsgen.memory.activations.course import NOTHING, plus
from dsgen.memory.activations.moments import Moment, Size
from dsgen.memory.activations.operators import INDEX
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.stretch import Stretch
from dsgen.memory.activations.t5 import Place
from dsgen.memory.activations.tape import Tape, Tensor

__all__ = ["encoded"]


def encoded(on: Setting, target_len: int, *, checkpointing: bool, told: bool) -> dict[str, Any]:
    """The fields of Activations but its blocks, which are there as (name, number, stretch)."""
    model = on.model
    behind = on._replace(seq_len=target_len, source_len=on.seq_len)
    first = Tape()
    hidden, embedded = t5.before(first, on)
    shape = Tensor(hidden.rows, hidden.width, hidden.item, None, (True, 0))
    size = (0, on.seq_len * on.hidden * on.item)
    before = first.recorded()
    referred = size if model.dropout else NOTHING  # forward refers to what its dropout got
    rest = plus(plus(first.alive(), size, -1), referred, -1)  # what dropout keeps
    del hidden, embedded
    target = Tensor(behind.rows, shape.width, shape.item, None, (True, 0))
    # What is added to scores: of the encoder, of the decoder, and of the decoder to what it reads of the encoder.
    bias = _bytes(t5.biases(on), on.seq_len * on.item)
    own, zeros = (_bytes(t5.biases(behind), length * on.item) for length in (target_len, on.seq_len))
    mask = (0, target_len * target_len * on.item)
    names = [*_stack("encoder", model.encoder_layers), ("between", 1), *_stack("decoder", model.layers)]
    runs: list[tuple[str, int, Stretch]] = []
    forward: list[Size] = []
    backward: list[tuple[Size, Size]] = []
    for name, count in names:
        decodes, made = name.startswith("decoder"), not name.endswith("first") and name != "between"
        its = (behind, name, target) if decodes else (behind if name == "between" else on, name, shape)
        runs.append((name, count, _run(*its, checkpointing, told)))
        beside = plus(plus(referred, mask) if decodes else referred, plus(own, zeros) if decodes else bias, made)
        # Checkpoints of the encoder refer to its biases, and those of the decoder to what is made in it.
        other = bias if checkpointing and (decodes or name == "between") and model.encoder_layers > 1 else NOTHING
        forward.append(plus(beside, other))
        if not checkpointing:
            backward.append((NOTHING, NOTHING))
            continue
        held = plus(plus(other, own if decodes else bias, made), zeros)  # their leaf lives as long as the loss
        backward.append((plus(held, mask), NOTHING) if decodes else (held, zeros))  # the zeros' gradient is whole
    ended = plus(referred, plus(mask, plus(own, zeros)))
    all_held = plus(plus(mask, bias), plus(own, zeros)) if checkpointing else NOTHING
    forward.append(plus(ended, bias) if checkpointing else ended)
    backward.append((all_held, NOTHING))
    vocabulary = (model.vocab_size,)
    last = Stretch.run(
        lambda tape, held: t5.head(tape, behind, held),
        target,
        again=False,
        vocabulary=vocabulary,
        told=told,
        shrinks=True,
    )
    blocks = NOTHING
    for _, count, stretch in runs:
        blocks = plus(blocks, stretch.kept, count)
    leaf = model.vocab_size * on.hidden * on.item
    asked = zeros if checkpointing else NOTHING
    ends = [
        Moment(asked, NOTHING, plus(asked, size), 0, leaf),
        Moment(asked, NOTHING, asked, 0, 2 * leaf),
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
        "blocks": runs,
        "forward": course.forward(before, runs, last, rest, plus(NOTHING, all_held, -1), NOTHING, forward),
        "backward": course.backward(last, runs, below, ends, leaf, 0, backward),
        "first": course.first(last, runs[-1][2], plus(below, all_held), leaf),
    }


def _stack(name: str, blocks: int) -> list[tuple[str, int]]:
    """Kinds of blocks of a stack, and how many of each."""
    if blocks == 1:
        return [(f"{name} only first", 1)]
    kinds = [(f"{name} first", 1), (name, blocks - 2), (f"{name} last", 1)]
    return [(kind, count) for kind, count in kinds if count]


def _run(on: Setting, name: str, shape: Tensor, again: bool, told: bool) -> Stretch:
    if name == "between":
        return Stretch.run(
            lambda tape, hidden: t5.between(tape, on, hidden), shape, again=False, told=told, shrinks=True
        )
    only = name.endswith("only first")
    place = Place(name.startswith("decoder"), name.endswith("first"), only or name.endswith("last"), again)
    return Stretch.run(
        lambda tape, hidden: t5.block(tape, on, hidden, place), shape, again=again, told=told, shrinks=True
    )


def _bytes(rows: Size, each: int) -> Size:
    return rows[0] * each, rows[1] * each
