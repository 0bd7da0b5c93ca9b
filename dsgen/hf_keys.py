"""How each model_type writes its facts in config.json: the names of the keys, and the class's default of each.

Source: the configuration class of each model_type in transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

__all__ = ["FAMILIES", "FOUR_H", "HEADS", "SPLIT", "Family", "Key"]

# Defaults that follow from other keys.
HEADS = "as many as attention heads"
SPLIT = "hidden_size / attention heads"
FOUR_H = "4 x hidden_size"


@attrs.frozen
class Key:
    """One fact in a config: its names there (the first is written), and its value where it is left out or null."""

    fact: str
    names: tuple[str, ...]
    default: int | bool | str
    null: int | str | None = None  # what null means where that is not the default


@attrs.frozen
class Family:
    """How one model_type writes its facts.

    Attributes:
        keys: In the order in which defaults may build on each other.
        gated: Whether the feed-forward block has a gate; no key says so.
        pinned: Keys that dsgen counts at one value only.
    """

    keys: tuple[Key, ...]
    gated: bool = True
    pinned: Mapping[str, bool | int] = attrs.field(factory=dict)


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


def _keys(
    layers: int,
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
    mixture: Mapping[str, int] | None = None,
    **rest: int | bool | str,
) -> tuple[Key, ...]:
    """Keys with the class's defaults; `names` replaces some of the usual names, `mixture` is what `_experts` gives."""
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
        **(mixture or {}),
    }
    named = {**_NAMES, **(names or {})}
    return tuple(Key(fact, named[fact], default, _NULLS.get(fact)) for fact, default in defaults.items())


def _experts(experts: int, each: int, width: int | None = None, **rest: int) -> dict[str, int]:
    """Facts of a mixture: how many experts, how many `each` token is routed to, an expert's `width` if it is a key."""
    own = {} if width is None else {"expert_ffn_size": width}
    return {"experts": experts, "experts_per_token": each, **own, **rest}


def _low_ranks(query: int, key_value: int, rope: int, value: int) -> dict[str, int]:
    """Facts of MLA."""
    return {"q_lora_rank": query, "kv_lora_rank": key_value, "qk_rope_head_size": rope, "v_head_size": value}


_GPT2_NAMES: dict[str, tuple[str, ...]] = {
    "layers": ("n_layer", "num_hidden_layers"),
    "hidden_size": ("n_embd", "hidden_size"),
    "attention_heads": ("n_head", "num_attention_heads"),
    "ffn_size": ("n_inner",),
    "max_positions": ("n_positions", "max_position_embeddings", "n_ctx"),
}
_BLOOM_NAMES: dict[str, tuple[str, ...]] = {
    "layers": ("n_layer", "num_hidden_layers"),
    "hidden_size": ("hidden_size", "n_embed"),
    "attention_heads": ("n_head", "num_attention_heads"),
    "ffn_size": (),
    "max_positions": ("seq_length",),
}
_FALCON_NAMES: dict[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer"),
    "attention_heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_kv_heads", "n_head_kv"),
    "head_size": (),
    "ffn_size": ("ffn_hidden_size",),
}
# No key says that every head has its own key and value, or that the heads split hidden_size.
_PLAIN_HEADS: dict[str, tuple[str, ...]] = {"kv_heads": (), "head_size": ()}
_LOCAL_EXPERTS = {"experts": ("num_local_experts", "num_experts")}
_ROUTED_EXPERTS: dict[str, tuple[str, ...]] = {"experts": ("n_routed_experts", "num_local_experts"), "head_size": ()}

# ALiBi has no longest sequence; BLOOM was trained on 2048 tokens (arXiv 2211.05100, table 3).
_BLOOM_POSITIONS = 2048

FAMILIES: dict[str, Family] = {
    "bloom": Family(
        _keys(
            2, 64, 8, HEADS, SPLIT, FOUR_H, 250880, _BLOOM_POSITIONS, tied=True, names={**_PLAIN_HEADS, **_BLOOM_NAMES}
        ),
        gated=False,
    ),
    "deepseek_v3": Family(
        _keys(
            *(61, 7168, 128, 128, 192, 18432, 129280, 4096),
            tied=False,
            names=_ROUTED_EXPERTS,
            attention_bias=False,
            mixture=_experts(256, 8, 2048, shared_experts=1, dense_layers=3, **_low_ranks(1536, 512, 64, 128)),
        )
    ),
    "falcon": Family(
        _keys(32, 4544, 71, HEADS, SPLIT, FOUR_H, 65024, 2048, tied=True, names=_FALCON_NAMES),
        gated=False,
        pinned={"parallel_attn": True, "bias": False},
    ),
    "gemma": Family(_keys(28, 3072, 16, 16, 256, 24576, 256000, 8192, tied=True, attention_bias=False)),
    "gemma2": Family(
        _keys(26, 2304, 8, 4, 256, 9216, 256000, 8192, tied=True, attention_bias=False, sliding_window=4096)
    ),
    "gemma3_text": Family(
        _keys(26, 2304, 8, 4, 256, 9216, 262208, 131072, tied=True, attention_bias=False, sliding_window=4096)
    ),
    "gpt2": Family(
        _keys(12, 768, 12, HEADS, SPLIT, FOUR_H, 50257, 1024, tied=True, names={**_PLAIN_HEADS, **_GPT2_NAMES}),
        gated=False,
        pinned={"add_cross_attention": False},
    ),
    "gpt_neox": Family(
        _keys(44, 6144, 64, HEADS, SPLIT, 24576, 50432, 2048, tied=False, names=_PLAIN_HEADS),
        gated=False,
        pinned={"attention_bias": True},
    ),
    "gpt_oss": Family(
        _keys(
            *(36, 2880, 64, 8, 64, 2880, 201088, 131072),
            tied=False,
            names=_LOCAL_EXPERTS,
            sliding_window=128,
            mixture=_experts(128, 4),
        ),
        pinned={"attention_bias": True},
    ),
    "gptj": Family(
        _keys(28, 4096, 16, HEADS, SPLIT, FOUR_H, 50400, 2048, tied=False, names={**_PLAIN_HEADS, **_GPT2_NAMES}),
        gated=False,
    ),
    "llama": Family(
        _keys(32, 4096, 32, HEADS, SPLIT, 11008, 32000, 2048, tied=False, attention_bias=False, mlp_bias=False)
    ),
    "mistral": Family(_keys(32, 4096, 32, 8, SPLIT, 14336, 32000, 131072, tied=False, sliding_window=4096)),
    "mixtral": Family(
        _keys(
            *(32, 4096, 32, 8, SPLIT, 14336, 32000, 131072),
            tied=False,
            names=_LOCAL_EXPERTS,
            sliding_window=0,
            mixture=_experts(8, 2),
        )
    ),
    "opt": Family(
        _keys(
            12,
            768,
            12,
            HEADS,
            SPLIT,
            3072,
            50272,
            2048,
            tied=True,
            names={**_PLAIN_HEADS, "ffn_size": ("ffn_dim",)},
            embedding_size=0,
        ),
        gated=False,
        pinned={"enable_bias": True, "layer_norm_elementwise_affine": True, "_remove_final_layer_norm": False},
    ),
    "phi3": Family(
        _keys(32, 3072, 32, HEADS, SPLIT, 8192, 32064, 4096, tied=False, sliding_window=0),
        pinned={"attention_bias": False, "mlp_bias": False, "lm_head_bias": False},
    ),
    "qwen2": Family(_keys(32, 4096, 32, 32, SPLIT, 22016, 151936, 32768, tied=False, sliding_window=4096)),
    "qwen2_moe": Family(
        _keys(
            *(24, 2048, 16, 16, SPLIT, 5632, 151936, 32768),
            tied=False,
            names={"shared_experts": ()},
            mixture=_experts(60, 4, 1408, shared_experts=1, shared_ffn_size=5632),
        ),
        pinned={"decoder_sparse_step": 1, "norm_topk_prob": False, "qkv_bias": True, "use_sliding_window": False},
    ),
    "qwen3": Family(
        _keys(32, 4096, 32, 32, 128, 22016, 151936, 32768, tied=False, attention_bias=False, sliding_window=4096)
    ),
    "qwen3_moe": Family(
        _keys(
            *(24, 2048, 32, 4, SPLIT, 6144, 151936, 32768),
            tied=False,
            attention_bias=False,
            sliding_window=4096,
            mixture=_experts(128, 8, 768),
        ),
        pinned={"decoder_sparse_step": 1},
    ),
}
