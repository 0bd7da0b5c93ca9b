"""Forward of OLMo 2's block, and attention of OLMoE: sizes on a tape.

Source: transformers 5.23, models/{olmo2,olmoe}/modeling_*.py. Names are those of the classes.
"""

from __future__ import annotations

import functools

from dsgen.memory.activations import llama
from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import attend
from dsgen.memory.activations.norms import norm
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Names, Tape, Tensor, forward

__all__ = ["olmo2_block", "olmoe_attention"]


def olmo2_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """Olmo2DecoderLayer: rope tables are in fp32, which make queries and keys fp32 too."""
    return llama.block(tape, on, hidden, attending=functools.partial(olmoe_attention, item=op.FP32))


@forward
def olmoe_attention(
    my: Names, tape: Tape, on: Setting, hidden: Tensor, item: int | None = None
) -> tuple[Tensor, Tensor | None]:
    """OlmoeAttention and Olmo2Attention: norms over all heads together; `item` is bytes of a number of a rope table."""
    size, bias = on.model.head_size, on.model.attention_bias
    my.query = norm(tape, on, on.linear(tape, hidden, on.heads * size, "q_proj", bias=bias))
    my.key = norm(tape, on, on.linear(tape, hidden, on.kv_heads * size, "k_proj", bias=bias))
    my.value = on.linear(tape, hidden, on.kv_heads * size, "v_proj", bias=bias)
    my.query, my.key = op.transposed(tape, my.query), op.transposed(tape, my.key)
    if on.eager:
        my.value = op.transposed(tape, my.value)
    table = on.table(size, item)
    turned = [llama.rotate(tape, one, table, table) for one in (my.query, my.key)]
    my.query, my.key = (op.cast(tape, one, my.value.item) for one in turned)
    tape.hold(*turned)
    out, weights = attend(tape, on, my.query, my.key, my.value)
    return on.linear(tape, out, on.hidden, "o_proj", bias=bias), weights
