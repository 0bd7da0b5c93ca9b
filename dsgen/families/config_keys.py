"""The keys of a config.json: a fact's names there and its default, and the names that recur."""

from collections.abc import Mapping
from typing import NamedTuple

__all__ = [
    "AS_ENCODER",
    "FLOORED",
    "FOUR_H",
    "GPT2_NAMES",
    "HEADS",
    "LOCAL_EXPERTS",
    "PLAIN_HEADS",
    "SPLIT",
    "ConfigKey",
    "keys",
]

# Defaults that follow from other keys.
AS_ENCODER = "as many as the encoder has"
HEADS = "as many as attention heads"
SPLIT = "hidden_size / attention heads"
FLOORED = "hidden_size // attention heads"
FOUR_H = "4 x hidden_size"


class ConfigKey(NamedTuple):
    """One fact in a config: its names there (the first is written), and its value where it is left out or null.

    Without a name it is a fact that no key says: its default is the only value, or a family reads it in its own way.
    """

    fact: str
    names: tuple[str, ...]
    default: int | bool | str
    null: int | str | None = None  # what null means where that is not the default


_NAMES: dict[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers",),
    "hidden_size": ("hidden_size",),
    "attention_heads": ("num_attention_heads",),
    "kv_heads": ("num_key_value_heads",),
    "head_size": ("head_dim",),
    "ffn_size": ("intermediate_size",),
    "vocab_size": ("vocab_size",),
    "max_positions": ("max_position_embeddings",),
    "tied_embeddings": ("tie_word_embeddings",),
    "attention_bias": ("attention_bias",),
    "mlp_bias": ("mlp_bias",),
    "qk_norm": ("use_qk_norm",),
    "sliding_window": ("sliding_window",),
    "experts": ("num_experts", "num_local_experts"),
    "experts_per_token": ("num_experts_per_tok",),
    "expert_ffn_size": ("moe_intermediate_size",),
    "shared_experts": ("n_shared_experts",),
    "shared_ffn_size": ("shared_expert_intermediate_size",),
    "dense_layers": ("first_k_dense_replace",),
    "q_lora_rank": ("q_lora_rank",),
    "kv_lora_rank": ("kv_lora_rank",),
    "qk_rope_head_size": ("qk_rope_head_dim",),
    "v_head_size": ("v_head_dim",),
    "embedding_size": ("word_embed_proj_dim",),
}
_NULLS: dict[str, int | str] = {"kv_heads": HEADS, "head_size": SPLIT, "sliding_window": 0, "q_lora_rank": 0}


def keys(
    layers: int | str,
    hidden_size: int,
    attention_heads: int,
    kv_heads: int | str,
    head_size: int | str,
    ffn_size: int | str,
    vocab_size: int,
    max_positions: int,
    *,
    tied: bool,
    names: Mapping[str, tuple[str, ...]] | None = None,
    **rest: int | bool | str,
) -> tuple[ConfigKey, ...]:
    """Keys with the class's defaults, in the order in which those may build on each other.

    `names` replaces some of the usual names; none for a fact that no key says.
    """
    defaults: dict[str, int | bool | str] = {
        "layers": layers,
        "hidden_size": hidden_size,
        "attention_heads": attention_heads,
        "kv_heads": kv_heads,
        "head_size": head_size,
        "ffn_size": ffn_size,
        "vocab_size": vocab_size,
        "max_positions": max_positions,
        "tied_embeddings": tied,
        **rest,
    }
    named = {**_NAMES, **(names or {})}
    return tuple(ConfigKey(fact, named[fact], default, _NULLS.get(fact)) for fact, default in defaults.items())


GPT2_NAMES: dict[str, tuple[str, ...]] = {
    "kv_heads": (),
    "head_size": (),
    "layers": ("n_layer", "num_hidden_layers"),
    "hidden_size": ("n_embd", "hidden_size"),
    "attention_heads": ("n_head", "num_attention_heads"),
    "ffn_size": ("n_inner",),
    "max_positions": ("n_positions", "max_position_embeddings", "n_ctx"),
}
# No key says that every head has its own key and value, or that the heads split hidden_size.
PLAIN_HEADS: dict[str, tuple[str, ...]] = {"kv_heads": (), "head_size": ()}
LOCAL_EXPERTS = {"experts": ("num_local_experts", "num_experts")}
