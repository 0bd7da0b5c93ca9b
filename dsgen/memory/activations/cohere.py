"""Forward of Cohere's block: sizes on a tape.

Source: transformers 5.23, models/cohere/modeling_cohere.py. Names are those of the class.
"""

from __future__ import annotations

from dsgen.memory.activations import llama
from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import attend
from dsgen.memory.activations.norms import norm
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Names, Tape, Tensor, forward

__all__ = ["cohere_block"]


@forward
def cohere_block(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """CohereDecoderLayer: attention and feed-forward share a norm."""
    my.states = norm(tape, on, hidden)
    my.found, my.weights = _attention(tape, on, my.states)
    out = llama.mlp(tape, on, my.states)
    both = op.add(tape, hidden, my.found)
    return op.add(tape, both, out)


@forward
def _attention(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """CohereAttention: queries and keys are rotated in fp32."""
    size, bias = on.model.head_size, on.model.attention_bias
    my.query = on.linear(tape, hidden, on.heads * size, "q_proj", bias=bias)
    my.key = on.linear(tape, hidden, on.kv_heads * size, "k_proj", bias=bias)
    my.value = on.linear(tape, hidden, on.kv_heads * size, "v_proj", bias=bias)
    my.query, my.key = op.transposed(tape, my.query), op.transposed(tape, my.key)
    if on.eager:
        my.value = op.transposed(tape, my.value)
    my.query, my.key = _rotated(tape, on, my.query, my.key)
    out, weights = attend(tape, on, my.query, my.key, my.value)
    return on.linear(tape, out, on.hidden, "o_proj", bias=bias), weights


@forward
def _rotated(my: Names, tape: Tape, on: Setting, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb."""
    item, table = query.item, on.table(on.model.head_size)
    my.query, my.key = op.cast(tape, query, op.FP32), op.cast(tape, key, op.FP32)
    my.turned, my.turned_key = (llama.rotate(tape, one, table, table) for one in (my.query, my.key))
    return op.cast(tape, my.turned, item), op.cast(tape, my.turned_key, item)
