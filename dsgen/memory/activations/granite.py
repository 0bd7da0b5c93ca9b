"""Forward of Granite's blocks: sizes on a tape.

Source: transformers 5.23, models/{granite,granitemoe}/modeling_*.py. Names are those of the class.
"""

from __future__ import annotations

from typing import Any

from dsgen.memory.activations import llama
from dsgen.memory.activations import operators as op
from dsgen.memory.activations.mixtures import mixture
from dsgen.memory.activations.norms import norm
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Names, Tape, Tensor, forward

__all__ = ["granite_block", "granitemoe_block"]


@forward
def granite_block(my: Names, tape: Tape, on: Setting, hidden: Tensor, feeding: Any = llama.mlp) -> Tensor:
    """GraniteDecoderLayer: Llama's, with what each part adds multiplied by a number."""
    my.states = norm(tape, on, hidden)
    my.states, my.weights = llama.attention(tape, on, my.states)
    hidden = op.add(tape, hidden, op.scaled(tape, my.states))
    my.states = norm(tape, on, hidden)
    my.states = feeding(tape, on, my.states)
    return op.add(tape, hidden, op.scaled(tape, my.states))


def granitemoe_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """GraniteMoeDecoderLayer."""
    return granite_block(tape, on, hidden, feeding=mixture)
