"""Forward of Granite's block: sizes on a tape.

Source: transformers 5.23, models/granite/modeling_granite.py. Local variables are those of the class.
"""

from __future__ import annotations

from dsgen.memory.activations import llama
from dsgen.memory.activations import operators as op
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Tape, Tensor

__all__ = ["granite_block"]


def granite_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """GraniteDecoderLayer: Llama's, with what each part adds multiplied by a number."""
    residual = hidden
    states = llama.norm(tape, on, hidden)
    states, weights = llama.attention(tape, on, states)
    product = op.scaled(tape, states)
    hidden = op.add(tape, residual, product)
    del product
    residual = hidden
    states = llama.norm(tape, on, hidden)
    states = llama.mlp(tape, on, states)
    product = op.scaled(tape, states)
    hidden = op.add(tape, residual, product)
    del product, states, weights
    return hidden
