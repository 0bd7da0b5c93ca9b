"""Llama: rotary positions, RMSNorms, a gated feed-forward part; what most later models are made after."""

from __future__ import annotations

from dsgen.families import rows
from dsgen.families.config_keys import HEADS, SPLIT, keys
from dsgen.families.family import AutoTP, Family
from dsgen.families.parts.llama import llama_forward
from dsgen.families.tape import liger

__all__ = ["BLOCK", "LLAMA"]

BLOCK = (*rows.attention(bias="attention_bias"), *rows.gated_mlp(bias="mlp_bias"), *rows.TWO_NORMS)

LLAMA = Family(
    model_type="llama",
    huggingface="LlamaForCausalLM",
    hybrid=True,
    keys=keys(32, 4096, 32, HEADS, SPLIT, 11008, 32000, 2048, tied=False, attention_bias=False, mlp_bias=False),
    layout=rows.llama_frame(dense=BLOCK),
    forward=llama_forward(liger_norm=liger.norm),
    autotp=AutoTP(head=True, tied_head=True),
)
