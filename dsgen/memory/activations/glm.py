"""Forward of GLM-4's block, and attention of its mixture of experts: sizes on a tape.

Source: transformers 5.23, models/{glm4,glm4_moe}/modeling_*.py. Names are those of the classes.
"""

from __future__ import annotations

from dsgen.memory.activations import llama
from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import attend
from dsgen.memory.activations.norms import head_norm
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Names, Tape, Tensor, forward

__all__ = ["glm4_block", "glm4_moe_attention"]


def glm4_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """Glm4DecoderLayer: a norm before and after each part."""
    return llama.block(tape, on, hidden, attending=_attention)


@forward
def _attention(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """Glm4Attention: half of every head is rotated, its neighbours as pairs."""
    size, bias = on.model.head_size, on.model.attention_bias
    my.query = op.transposed(tape, on.linear(tape, hidden, on.heads * size, "q_proj", bias=bias))
    my.key = op.transposed(tape, on.linear(tape, hidden, on.kv_heads * size, "k_proj", bias=bias))
    my.value = on.linear(tape, hidden, on.kv_heads * size, "v_proj", bias=bias)
    if on.eager:
        my.value = op.transposed(tape, my.value)
    my.query, my.key = _rotated(tape, on, my.query, my.key, size // 2)
    out, weights = attend(tape, on, my.query, my.key, my.value, heads_first=True)
    return on.linear(tape, out, on.hidden, "o_proj"), weights


@forward
def _rotated(my: Names, tape: Tape, on: Setting, query: Tensor, key: Tensor, rotary: int) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb, which repeats the elements of its tables for every block."""
    my.cosine, my.sine = (tape.make((on.seq_len, 0), rotary, on.item) for _ in range(2))
    first, rest = op.part(tape, query, on.heads * rotary), op.part(tape, query, query.width - on.heads * rotary)
    first_key = op.part(tape, key, on.kv_heads * rotary)
    rest_key = op.part(tape, key, key.width - on.kv_heads * rotary)
    turned = llama.rotate(tape, first, my.cosine, my.sine)
    turned_key = llama.rotate(tape, first_key, my.cosine, my.sine)
    return op.cat(tape, turned, rest), op.cat(tape, turned_key, rest_key)


@forward
def glm4_moe_attention(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """Glm4MoeAttention: half of every head is rotated; a norm over every head where the config says so."""
    model = on.model
    size, bias = model.head_size, model.attention_bias
    rotary = size // llama.PARTS["glm4_moe"]
    my.query = op.transposed(tape, on.linear(tape, hidden, on.heads * size, "q_proj", bias=bias))
    my.key = op.transposed(tape, on.linear(tape, hidden, on.kv_heads * size, "k_proj", bias=bias))
    my.value = on.linear(tape, hidden, on.kv_heads * size, "v_proj", bias=bias)
    if on.eager:
        my.value = op.transposed(tape, my.value)
    if model.qk_norm:
        my.query = head_norm(tape, on, my.query, on.heads)
        my.key = head_norm(tape, on, my.key, on.kv_heads)
    query_turned, query_rest = _cut(tape, my.query, on.heads * rotary)
    key_turned, key_rest = _cut(tape, my.key, on.kv_heads * rotary)
    table = on.table(rotary)
    turned = llama.rotate(tape, query_turned, table, table)
    turned_key = llama.rotate(tape, key_turned, table, table)
    my.query, my.key = op.cat(tape, turned, query_rest), op.cat(tape, turned_key, key_rest)
    out, weights = attend(tape, on, my.query, my.key, my.value, heads_first=True)
    return on.linear(tape, out, on.hidden, "o_proj"), weights


def _cut(tape: Tape, tensor: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The part of every head that is rotated, and the rest."""
    return op.part(tape, tensor, width), op.part(tape, tensor, tensor.width - width)
