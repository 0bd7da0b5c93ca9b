"""OLMo 2, with norms behind each part of a block, and OLMoE, a mixture of experts; both norm all heads together."""

from __future__ import annotations

import functools

from dsgen.families import peft, rows
from dsgen.families.config_keys import HEADS, SPLIT, keys
from dsgen.families.family import UNKNOWN_STYLE, Family
from dsgen.families.orders import FIRST, GATED, NORMED, OUT, SECOND, Order
from dsgen.families.parts import llama
from dsgen.families.parts.mixtures import routed
from dsgen.families.parts.rotary import rotate
from dsgen.families.reading import expert_width
from dsgen.families.tape import operators as op
from dsgen.families.tape.attending import attend
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.norms import norm, wide_rms_norm
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["OLMO2", "OLMOE"]


@forward
def _attention(
    my: Names, tape: Tape, on: Execution, hidden: Tensor, item: int | None = None
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
    turned = [rotate(tape, one, table, table) for one in (my.query, my.key)]
    my.query, my.key = (op.cast(tape, one, my.value.item) for one in turned)
    tape.hold(*turned)
    out, weights = attend(tape, on, my.query, my.key, my.value)
    return on.linear(tape, out, on.hidden, "o_proj", bias=bias), weights


OLMO2 = Family(
    model_type="olmo2",
    huggingface="Olmo2ForCausalLM",
    keys=keys(32, 4096, 32, HEADS, SPLIT, 11008, 50304, 2048, tied=False, attention_bias=False),
    layout=rows.llama_frame(
        dense=(
            *rows.NORMED_ATTENTION,
            *rows.gated_mlp(),
            *rows.norm("post_attention_layernorm"),
            *rows.norm("post_feedforward_layernorm"),
        )
    ),
    forward=llama.llama_forward(  # rope tables are in fp32, which make queries and keys fp32 too
        attending=functools.partial(_attention, item=op.FP32),
        norms=llama.BEHIND,
        norm=wide_rms_norm,
        before=functools.partial(llama.before, item=op.FP32),
    ),
    order=Order(dense=f"{NORMED} {OUT} {SECOND} {GATED} post_feedforward_layernorm"),
    autotp=UNKNOWN_STYLE,
)
OLMOE = Family(
    model_type="olmoe",
    huggingface="OlmoeForCausalLM",
    keys=keys(
        *(16, 2048, 16, HEADS, SPLIT, 2048, 50304, 4096),
        tied=False,
        names={"head_size": ()},
        attention_bias=False,
        experts=64,
        experts_per_token=8,
    ),
    pinned={"clip_qkv": None, "norm_topk_prob": False},
    read=expert_width,
    layout=rows.llama_frame(sparse=(*rows.NORMED_ATTENTION, *rows.ROUTER, *rows.EXPERTS, *rows.TWO_NORMS)),
    forward=llama.llama_forward(attending=_attention, mixture=routed()),
    order=Order(sparse=f"{FIRST} {NORMED} {OUT} {SECOND} mlp mlp.gate mlp.experts mlp.experts.act_fn"),
    autotp=UNKNOWN_STYLE,
    parts=peft.PARTS,
)
