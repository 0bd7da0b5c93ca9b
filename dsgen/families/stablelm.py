"""StableLM 2: Llama with LayerNorms, a quarter of every head rotated."""

from __future__ import annotations

from dsgen.families import rows
from dsgen.families.family import Family
from dsgen.families.keys import SPLIT, keys
from dsgen.families.orders import LLAMA, Order
from dsgen.families.reading import Rotated

__all__ = ["STABLELM"]

STABLELM = Family(
    model_type="stablelm",
    huggingface="StableLmForCausalLM",
    keys=keys(
        *(32, 2560, 32, 32, SPLIT, 6912, 50304, 4096),
        tied=False,
        names={"head_size": (), "attention_bias": ("use_qkv_bias",)},
        attention_bias=False,
    ),
    pinned={
        "qk_layernorm": False,
        "use_parallel_residual": False,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    },
    rotated=Rotated(0.25),
    layout=rows.llama_frame(
        dense=(
            *rows.BIASED_QKV,
            *rows.gated_mlp(),
            *rows.layer_norm("input_layernorm"),
            *rows.layer_norm("post_attention_layernorm"),
        ),
        after=rows.layer_norm("model.norm"),
    ),
    order=Order(dense=f"{LLAMA} dropout"),
)
