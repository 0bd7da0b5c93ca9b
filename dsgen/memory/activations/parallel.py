"""Forward of models whose attention and feed-forward part share a norm: sizes on a tape.

Source: transformers 5.23, models/phi/modeling_phi.py. Local variables are those of the classes.
"""

from __future__ import annotations

from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import attend
from dsgen.memory.activations.gelus import gelu_steps
from dsgen.memory.activations.llama import rotate
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Tape, Tensor
from dsgen.memory.trained import PHI_ROTARY

__all__ = ["phi_block"]


def phi_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """PhiDecoderLayer."""
    residual = hidden
    states = on.layer_norm(tape, hidden)
    found, weights = _phi_attention(tape, on, states)
    found = op.dropout(tape, found, on.model.dropout)
    out = on.linear(tape, states, on.ffn, "fc1", bias=True)
    out = gelu_steps(tape, out)
    out = on.linear(tape, out, on.hidden, "fc2", bias=True)
    out = op.dropout(tape, out, on.model.dropout)
    both = op.add(tape, found, out)
    hidden = op.add(tape, both, residual)
    del both, found, weights, out
    return hidden


def _phi_attention(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    size = on.model.head_size
    query = op.transposed(tape, on.linear(tape, hidden, on.heads * size, "q_proj", bias=True))
    key = op.transposed(tape, on.linear(tape, hidden, on.kv_heads * size, "k_proj", bias=True))
    value = on.linear(tape, hidden, on.kv_heads * size, "v_proj", bias=True)
    if on.eager:
        value = op.transposed(tape, value)
    query_turned, query_rest = _cut(tape, query, on.heads, PHI_ROTARY)
    key_turned, key_rest = _cut(tape, key, on.kv_heads, PHI_ROTARY)
    table = on.table(PHI_ROTARY)
    query_turned, key_turned = rotate(tape, query_turned, table, table), rotate(tape, key_turned, table, table)
    query = op.cat(tape, query_turned, query_rest)
    key = op.cat(tape, key_turned, key_rest)
    out, weights = attend(tape, on, query, key, value, heads_first=True)
    out = on.linear(tape, out, on.hidden, "dense", bias=True)
    del query_turned, query_rest, key_turned, key_rest  # the class's names for them last until here
    return out, weights


def _cut(tape: Tape, tensor: Tensor, heads: int, rotary: int) -> tuple[Tensor, Tensor]:
    """The part of every head that is rotated, and the rest."""
    width = heads * rotary
    return op.part(tape, tensor, width), op.part(tape, tensor, tensor.width - width)
