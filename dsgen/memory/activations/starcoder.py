"""Forward of StarCoder2's block: sizes on a tape.

Source: transformers 5.23, models/starcoder2/modeling_starcoder2.py. Local variables are those of the class.
"""

from __future__ import annotations

from dsgen.memory.activations import llama
from dsgen.memory.activations import operators as op
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Tape, Tensor

__all__ = ["starcoder2_block"]


def starcoder2_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """Starcoder2DecoderLayer."""
    return llama.block(tape, on, hidden, feeding=_mlp)


def _mlp(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """Starcoder2MLP."""
    bias = on.model.attention_bias
    states = on.linear(tape, hidden, on.ffn, "c_fc", bias=bias)
    states = op.gelu(tape, states)
    states = on.linear(tape, states, on.hidden, "c_proj", bias=bias)
    return op.dropout(tape, states, on.model.dropout)
