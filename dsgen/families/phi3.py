"""Phi-3, Phi-3.5 and Phi-4: Llama with one matrix for query, key and value, and one for gate and up."""

from __future__ import annotations

from dsgen.families import rows
from dsgen.families.family import UNKNOWN_STYLE, Family
from dsgen.families.keys import HEADS, SPLIT, keys
from dsgen.families.orders import FIRST, OUT, SECOND, Order

__all__ = ["PHI3"]

PHI3 = Family(
    model_type="phi3",
    huggingface="Phi3ForCausalLM",
    keys=keys(32, 3072, 32, HEADS, SPLIT, 8192, 32064, 4096, tied=False, sliding_window=0),
    pinned={"attention_bias": False, "mlp_bias": False, "lm_head_bias": False},
    layout=rows.llama_frame(
        dense=(
            *rows.linear("self_attn.o_proj", "hidden", "q", "attention"),
            *rows.linear("self_attn.qkv_proj", "qkv", "hidden", "attention"),
            *rows.linear("mlp.gate_up_proj", "ffn_pair", "hidden", "mlp"),
            *rows.linear("mlp.down_proj", "hidden", "ffn", "mlp"),
            *rows.TWO_NORMS,
        )
    ),
    order=Order(
        dense=f"{FIRST} self_attn self_attn.qkv_proj {OUT} resid_attn_dropout {SECOND}"
        " mlp mlp.gate_up_proj mlp.activation_fn mlp.down_proj resid_mlp_dropout",
        registered="o_proj",
    ),
    autotp=UNKNOWN_STYLE,
)
