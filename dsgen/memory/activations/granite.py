"""Forward of Granite's blocks: sizes on a tape.

Source: transformers 5.23, models/{granite,granitemoe}/modeling_*.py. Local variables are those of the class.
"""

from __future__ import annotations

from typing import Any

from dsgen.memory.activations import llama
from dsgen.memory.activations import operators as op
from dsgen.memory.activations.mixtures import mixture
from dsgen.memory.activations.norms import norm
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Tape, Tensor

__all__ = ["granite_block", "granitemoe_block"]


def granite_block(tape: Tape, on: Setting, hidden: Tensor, feeding: Any = llama.mlp) -> Tensor:
    """GraniteDecoderLayer: Llama's, with what each part adds multiplied by a number."""
    residual = hidden
    states = norm(tape, on, hidden)
    states, weights = llama.attention(tape, on, states)
    product = op.scaled(tape, states)
    hidden = op.add(tape, residual, product)
    del product
    residual = hidden
    states = norm(tape, on, hidden)
    states = feeding(tape, on, states)
    product = op.scaled(tape, states)
    hidden = op.add(tape, residual, product)
    del product, states, weights
    return hidden


def granitemoe_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """GraniteMoeDecoderLayer."""
    return granite_block(tape, on, hidden, feeding=mixture)
