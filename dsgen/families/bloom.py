"""BLOOM: LayerNorms, position biases instead of positions (ALiBi), and Megatron's names."""

from __future__ import annotations

from dsgen.families import orders, rows
from dsgen.families.family import AutoTP, Family
from dsgen.families.keys import FOUR_H, HEADS, PLAIN_HEADS, SPLIT, keys
from dsgen.families.orders import FIRST, MEGATRON_MLP, SECOND

__all__ = ["BLOOM"]

# ALiBi has no longest sequence; BLOOM was trained on 2048 tokens (arXiv 2211.05100, table 3).
_POSITIONS = 2048
_NAMES: dict[str, tuple[str, ...]] = {
    **PLAIN_HEADS,
    "layers": ("n_layer", "num_hidden_layers"),
    "hidden_size": ("hidden_size", "n_embed"),
    "attention_heads": ("n_head", "num_attention_heads"),
    "ffn_size": (),
    "max_positions": ("seq_length",),
}

BLOOM = Family(
    model_type="bloom",
    huggingface="BloomForCausalLM",
    keys=keys(2, 64, 8, HEADS, SPLIT, FOUR_H, 250880, _POSITIONS, tied=True, names=_NAMES),
    gated=False,
    layout=rows.Layout(
        before=(
            *rows.embedding("transformer.word_embeddings.weight"),
            *rows.layer_norm("transformer.word_embeddings_layernorm"),
        ),
        block="transformer.h.*",
        dense=(
            *rows.layer_norm("input_layernorm"),
            *rows.megatron_attention("self_attention"),
            *rows.layer_norm("post_attention_layernorm"),
            *rows.megatron_mlp(),
        ),
        after=rows.layer_norm("transformer.ln_f"),
    ),
    order=orders.Order(
        dense=f"{FIRST} self_attention self_attention.query_key_value self_attention.attention_dropout"
        f" self_attention.dense {SECOND} {MEGATRON_MLP.format('mlp.gelu_impl')}",
        ahead="word_embeddings word_embeddings_layernorm",
    ),
    kernels=(),
    autotp=AutoTP(refused="AutoTP of {} stops in forward: its position biases (ALiBi) keep all heads"),
)
