"""Forward of GPT-BigCode's block: sizes on a tape.

Source: transformers 5.23, models/gpt_bigcode/modeling_gpt_bigcode.py. Local variables are those of the class.
"""

from __future__ import annotations

from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import attend
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Tape, Tensor

__all__ = ["gpt_bigcode_block"]


def gpt_bigcode_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """GPTBigCodeBlock: GPT-2's, with one key and value for all heads."""
    residual = hidden
    states = on.layer_norm(tape, hidden)
    found, weights = _attention(tape, on, states)
    hidden = op.add(tape, found, residual)
    residual = hidden
    states = on.layer_norm(tape, hidden)
    out = _mlp(tape, on, states)
    hidden = op.add(tape, residual, out)
    del found, weights
    return hidden


def _attention(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    size, drops = on.model.head_size, on.model.dropout
    width = on.heads * size
    fused = on.linear(tape, hidden, width + 2 * size, "c_attn", bias=True)
    query, key, value = op.split(tape, fused, width, size, size)
    del fused
    if on.eager:
        query = op.transposed(tape, query)
    out, weights = attend(tape, on, query, key, value, drop=drops)
    out = on.linear(tape, out, on.hidden, "c_proj", bias=True)
    return op.dropout(tape, out, drops), weights


def _mlp(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    states = on.linear(tape, hidden, on.ffn, "c_fc", bias=True)
    states = op.gelu(tape, states)
    states = on.linear(tape, states, on.hidden, "c_proj", bias=True)
    return op.dropout(tape, states, on.model.dropout)
