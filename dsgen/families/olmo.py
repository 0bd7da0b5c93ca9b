"""OLMo 2, with norms behind each part of a block, and OLMoE, a mixture of experts; both norm all heads together."""

from __future__ import annotations

from dsgen.families import experts, rows
from dsgen.families.family import UNKNOWN_STYLE, Family
from dsgen.families.keys import HEADS, SPLIT, keys
from dsgen.families.orders import FIRST, GATED, NORMED, OUT, SECOND, Order

__all__ = ["OLMO2", "OLMOE"]


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
    read=experts.width,
    layout=rows.llama_frame(sparse=(*rows.NORMED_ATTENTION, *rows.ROUTER, *rows.EXPERTS, *rows.TWO_NORMS)),
    order=Order(sparse=f"{FIRST} {NORMED} {OUT} {SECOND} mlp mlp.gate mlp.experts mlp.experts.act_fn"),
    autotp=UNKNOWN_STYLE,
    parts=experts.PARTS,
)
