"""Attention of mixtures that differs from Llama's: sizes on a tape.

Source: transformers 5.23, models/{glm4_moe,olmoe}/modeling_*.py. Local variables are those of the classes.
"""

from __future__ import annotations

from dsgen.memory.activations import llama
from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import attend
from dsgen.memory.activations.norms import head_norm, norm
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Tape, Tensor

__all__ = ["glm4_moe_attention", "olmoe_attention"]


def glm4_moe_attention(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """Glm4MoeAttention: half of every head is rotated; a norm over every head where the config says so."""
    model = on.model
    size, bias = model.head_size, model.attention_bias
    rotary = size // llama.PARTS["glm4_moe"]
    query = op.transposed(tape, on.linear(tape, hidden, on.heads * size, "q_proj", bias=bias))
    key = op.transposed(tape, on.linear(tape, hidden, on.kv_heads * size, "k_proj", bias=bias))
    value = on.linear(tape, hidden, on.kv_heads * size, "v_proj", bias=bias)
    if on.eager:
        value = op.transposed(tape, value)
    if model.qk_norm:
        query = head_norm(tape, on, query, on.heads)
        key = head_norm(tape, on, key, on.kv_heads)
    query_turned, query_rest = _cut(tape, query, on.heads * rotary)
    key_turned, key_rest = _cut(tape, key, on.kv_heads * rotary)
    table = on.table(rotary)
    turned = llama.rotate(tape, query_turned, table, table)
    turned_key = llama.rotate(tape, key_turned, table, table)
    joined = op.cat(tape, turned, query_rest)
    del turned
    joined_key = op.cat(tape, turned_key, key_rest)
    del turned_key, query_turned, query_rest, key_turned, key_rest
    query, key = joined, joined_key
    del joined, joined_key
    out, weights = attend(tape, on, query, key, value, heads_first=True)
    return on.linear(tape, out, on.hidden, "o_proj"), weights


def _cut(tape: Tape, tensor: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The part of every head that is rotated, and the rest."""
    return op.part(tape, tensor, width), op.part(tape, tensor, tensor.width - width)


def olmoe_attention(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """OlmoeAttention: norms over all heads together."""
    size, bias = on.model.head_size, on.model.attention_bias
    query = norm(tape, on, on.linear(tape, hidden, on.heads * size, "q_proj", bias=bias))
    key = norm(tape, on, on.linear(tape, hidden, on.kv_heads * size, "k_proj", bias=bias))
    value = on.linear(tape, hidden, on.kv_heads * size, "v_proj", bias=bias)
    query, key = op.transposed(tape, query), op.transposed(tape, key)
    if on.eager:
        value = op.transposed(tape, value)
    table = on.table(size)
    rotated, rotated_key = llama.rotate(tape, query, table, table), llama.rotate(tape, key, table, table)
    query, key = rotated, rotated_key
    del rotated, rotated_key
    out, weights = attend(tape, on, query, key, value)
    return on.linear(tape, out, on.hidden, "o_proj", bias=bias), weights
