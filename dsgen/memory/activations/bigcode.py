"""Forward of GPT-BigCode's block: sizes on a tape.

Source: transformers 5.23, models/gpt_bigcode/modeling_gpt_bigcode.py. Names are those of the class.
"""

from __future__ import annotations

from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import attend
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Names, Tape, Tensor, forward

__all__ = ["gpt_bigcode_block"]


@forward
def gpt_bigcode_block(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """GPTBigCodeBlock: GPT-2's, with one key and value for all heads."""
    my.states = on.layer_norm(tape, hidden)
    my.found, my.weights = _attention(tape, on, my.states)
    hidden = op.add(tape, my.found, hidden)
    my.states = on.layer_norm(tape, hidden)
    out = _mlp(tape, on, my.states)
    return op.add(tape, hidden, out)


@forward
def _attention(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    size, drops = on.model.head_size, on.model.dropout
    width = on.heads * size
    fused = on.linear(tape, hidden, width + 2 * size, "c_attn", bias=True)
    my.query, key, value = op.split(tape, fused, width, size, size)
    if on.eager:
        my.query = op.transposed(tape, my.query)
    out, weights = attend(tape, on, my.query, key, value, drop=drops)
    out = on.linear(tape, out, on.hidden, "c_proj", bias=True)
    return op.dropout(tape, out, drops), weights


def _mlp(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    states = on.linear(tape, hidden, on.ffn, "c_fc", bias=True)
    states = op.gelu(tape, states)
    states = on.linear(tape, states, on.hidden, "c_proj", bias=True)
    return op.dropout(tape, states, on.model.dropout)
