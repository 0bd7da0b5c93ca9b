"""Forward of Cohere's block: sizes on a tape.

Source: transformers 5.23, models/cohere/modeling_cohere.py. Local variables are those of the class.
"""

from __future__ import annotations

from dsgen.memory.activations import llama
from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import attend
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Tape, Tensor

__all__ = ["cohere_block"]


def cohere_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """CohereDecoderLayer: attention and feed-forward share a norm."""
    residual = hidden
    states = llama.norm(tape, on, hidden)
    found, weights = _attention(tape, on, states)
    out = llama.mlp(tape, on, states)
    both = op.add(tape, residual, found)
    hidden = op.add(tape, both, out)
    del both, found, weights, out
    return hidden


def _attention(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """CohereAttention: queries and keys are rotated in fp32."""
    size, bias = on.model.head_size, on.model.attention_bias
    query = on.linear(tape, hidden, on.heads * size, "q_proj", bias=bias)
    key = on.linear(tape, hidden, on.kv_heads * size, "k_proj", bias=bias)
    value = on.linear(tape, hidden, on.kv_heads * size, "v_proj", bias=bias)
    query, key = op.transposed(tape, query), op.transposed(tape, key)
    if on.eager:
        value = op.transposed(tape, value)
    query, key = _rotated(tape, on, query, key)
    out, weights = attend(tape, on, query, key, value)
    return on.linear(tape, out, on.hidden, "o_proj", bias=bias), weights


def _rotated(tape: Tape, on: Setting, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb."""
    item, table = query.item, on.table(on.model.head_size)
    query, key = op.cast(tape, query, op.FP32), op.cast(tape, key, op.FP32)
    turned, turned_key = llama.rotate(tape, query, table, table), llama.rotate(tape, key, table, table)
    return op.cast(tape, turned, item), op.cast(tape, turned_key, item)
