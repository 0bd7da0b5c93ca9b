"""Forward of OLMo 2's block: sizes on a tape.

Source: transformers 5.23, models/olmo2/modeling_olmo2.py. Local variables are those of the class.
"""

from __future__ import annotations

from dsgen.memory.activations import llama
from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import attend
from dsgen.memory.activations.norms import norm
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Tape, Tensor

__all__ = ["olmo2_block"]


def olmo2_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """Olmo2DecoderLayer."""
    return llama.block(tape, on, hidden, attending=_attention)


def _attention(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """Olmo2Attention: norms over all heads together, and rope tables in fp32, which make queries and keys fp32 too."""
    size, bias = on.model.head_size, on.model.attention_bias
    query = norm(tape, on, on.linear(tape, hidden, on.heads * size, "q_proj", bias=bias))
    key = norm(tape, on, on.linear(tape, hidden, on.kv_heads * size, "k_proj", bias=bias))
    value = on.linear(tape, hidden, on.kv_heads * size, "v_proj", bias=bias)
    query, key = op.transposed(tape, query), op.transposed(tape, key)
    if on.eager:
        value = op.transposed(tape, value)
    table = on.table(size, op.FP32)
    wide, wide_key = llama.rotate(tape, query, table, table), llama.rotate(tape, key, table, table)
    query, key = op.cast(tape, wide, value.item), op.cast(tape, wide_key, value.item)
    del wide, wide_key
    out, weights = attend(tape, on, query, key, value)
    return on.linear(tape, out, on.hidden, "o_proj", bias=bias), weights
