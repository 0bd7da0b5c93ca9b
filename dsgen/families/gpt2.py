"""GPT-2: learned positions, LayerNorms, and linear layers that are stored turned (Conv1D)."""

from __future__ import annotations

from dsgen.families import rows
from dsgen.families.family import AutoTP, Family
from dsgen.families.keys import FOUR_H, GPT2_NAMES, HEADS, SPLIT, keys
from dsgen.families.orders import GPT2 as BLOCK
from dsgen.families.orders import Order

__all__ = ["GPT2"]

GPT2 = Family(
    model_type="gpt2",
    huggingface="GPT2LMHeadModel",
    keys=keys(12, 768, 12, HEADS, SPLIT, FOUR_H, 50257, 1024, tied=True, names=GPT2_NAMES),
    gated=False,
    pinned={"add_cross_attention": False},
    layout=rows.Layout(
        before=(
            *rows.embedding("transformer.wte.weight"),
            rows.Row("transformer.wpe.weight", ("positions", "hidden"), "position"),
        ),
        block="transformer.h.*",
        dense=(
            *rows.layer_norm("ln_1"),
            *rows.conv1d("attn.c_attn", "hidden", "qkv", "attention"),
            *rows.conv1d("attn.c_proj", "q", "hidden", "attention"),
            *rows.layer_norm("ln_2"),
            *rows.conv1d("mlp.c_fc", "hidden", "ffn", "mlp"),
            *rows.conv1d("mlp.c_proj", "ffn", "hidden", "mlp"),
        ),
        after=rows.layer_norm("transformer.ln_f"),
    ),
    order=Order(dense=BLOCK, ahead="wte wpe drop", asks="mlp.dropout"),
    direct=True,  # Conv1D multiplies by `addmm`
    transposed=True,
    autotp=AutoTP(refused="DeepSpeed refuses AutoTP for {}: no rule of its own says how to split it"),
)
