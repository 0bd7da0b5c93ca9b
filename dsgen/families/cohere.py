"""Cohere's Command R and Aya 23: a LayerNorm without a bias for attention and feed-forward part alike."""

from __future__ import annotations

from dsgen.families import rows
from dsgen.families.family import AutoTP, Family
from dsgen.families.keys import HEADS, SPLIT, keys
from dsgen.families.orders import ATTENTION, FIRST, GATED, OUT, Order

__all__ = ["COHERE"]

COHERE = Family(
    model_type="cohere",
    huggingface="CohereForCausalLM",
    keys=keys(40, 8192, 64, HEADS, SPLIT, 22528, 256000, 8192, tied=True, attention_bias=False),
    pinned={"use_qk_norm": False},
    layout=rows.llama_frame(
        dense=(*rows.attention(bias="attention_bias"), *rows.gated_mlp(), *rows.norm("input_layernorm"))
    ),
    order=Order(dense=f"{FIRST} {ATTENTION} {OUT} {GATED}", parallel=("mlp.gate_proj", "mlp.up_proj")),
    autotp=AutoTP(head=True, tied_head=True),
)
