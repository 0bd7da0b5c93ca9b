"""GPT-NeoX and Pythia: attention and feed-forward part side by side, a quarter of every head rotated."""

from __future__ import annotations

from dsgen.families import rows
from dsgen.families.family import AutoTP, Family
from dsgen.families.keys import HEADS, PLAIN_HEADS, SPLIT, keys
from dsgen.families.orders import FIRST, MEGATRON_MLP, SECOND, Order

__all__ = ["GPT_NEOX"]

GPT_NEOX = Family(
    model_type="gpt_neox",
    huggingface="GPTNeoXForCausalLM",
    keys=keys(44, 6144, 64, HEADS, SPLIT, 24576, 50432, 2048, tied=False, names=PLAIN_HEADS),
    gated=False,
    pinned={"attention_bias": True},
    layout=rows.Layout(
        before=rows.embedding("gpt_neox.embed_in.weight"),
        block="gpt_neox.layers.*",
        dense=(
            *rows.layer_norm("input_layernorm"),
            *rows.layer_norm("post_attention_layernorm"),
            *rows.megatron_attention("attention"),
            *rows.megatron_mlp(),
        ),
        after=rows.layer_norm("gpt_neox.final_layer_norm"),
    ),
    order=Order(
        dense=f"{FIRST} attention attention.query_key_value attention.dense post_attention_dropout {SECOND}"
        f" {MEGATRON_MLP.format('mlp.act')} post_mlp_dropout",
        ahead="embed_in emb_dropout rotary_emb",
        parallel=("mlp.dense_h_to_4h",),
    ),
    autotp=AutoTP(head=True),
)
