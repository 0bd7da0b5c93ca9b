"""Forward of GLM-4's block: sizes on a tape.

Source: transformers 5.23, models/glm4/modeling_glm4.py. Local variables are those of the class.
"""

from __future__ import annotations

from dsgen.memory.activations import llama
from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import attend
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Tape, Tensor

__all__ = ["glm4_block"]


def glm4_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """Glm4DecoderLayer: a norm before and after each part."""
    return llama.block(tape, on, hidden, attending=_attention)


def _attention(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """Glm4Attention: half of every head is rotated, its neighbours as pairs."""
    size, bias = on.model.head_size, on.model.attention_bias
    query = op.transposed(tape, on.linear(tape, hidden, on.heads * size, "q_proj", bias=bias))
    key = op.transposed(tape, on.linear(tape, hidden, on.kv_heads * size, "k_proj", bias=bias))
    value = on.linear(tape, hidden, on.kv_heads * size, "v_proj", bias=bias)
    if on.eager:
        value = op.transposed(tape, value)
    turned, turned_key = _rotated(tape, on, query, key, size // 2)
    query, key = turned, turned_key
    del turned, turned_key
    out, weights = attend(tape, on, query, key, value, heads_first=True)
    return on.linear(tape, out, on.hidden, "o_proj"), weights


def _rotated(tape: Tape, on: Setting, query: Tensor, key: Tensor, rotary: int) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb, which repeats the elements of its tables for every block."""
    cosine, sine = (tape.born((on.seq_len, 0), rotary, on.item) for _ in range(2))
    first, rest = op.part(tape, query, on.heads * rotary), op.part(tape, query, query.width - on.heads * rotary)
    first_key = op.part(tape, key, on.kv_heads * rotary)
    rest_key = op.part(tape, key, key.width - on.kv_heads * rotary)
    turned = llama.rotate(tape, first, cosine, sine)
    turned_key = llama.rotate(tape, first_key, cosine, sine)
    turned = op.cat(tape, turned, rest)
    turned_key = op.cat(tape, turned_key, rest_key)
    return turned, turned_key
