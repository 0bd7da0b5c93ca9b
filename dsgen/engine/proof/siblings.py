"""The tiny sibling of a model: its config.json with small sizes and few layers, and all of its structure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["sibling"]

_LAYERS = 2  # one would hide a fault between two layers: prefetch and gather need a next one
_HEADS = 8  # divisible by the usual tensor-parallel degrees 1, 2, 4, 8
_GROUPS = 2  # key-value heads where several query heads share one
_HEAD_DIM = 8  # as the tiny Llama of engine.proof has it
_VOCAB = 256
# Of a wide one for two ranks: attention, embedding and experts together are swapped, matrices of 2**20 elements. Were
# its feed-forwards as wide, the last would be read ahead for forward and backward at once; at full size a head lies
# between the two (dsgen/memory/swapped_parameters.py).
_WIDE_HEAD_DIM, _WIDE_INNER, _WIDE_VOCAB = 128, 256, 1024
_POSITIONS = 64  # four times the tokens of a sample
_WINDOW = 8  # tokens: half a sample, so that a sliding window leaves something out
_EXPERTS, _CHOSEN = 4, 2  # experts, and those that a token takes
_EXPERT_GROUPS = 2
_GROUPED_BY_DEFAULT = ("deepseek_v3",)  # transformers 5.23: 8 groups where the config.json says none

# One size under the names that model families give it (the classes of transformers 5.23).
_LAYER_KEYS = ("num_hidden_layers", "n_layer", "num_layers", "num_decoder_layers")
_HEAD_KEYS = ("num_attention_heads", "n_head", "num_heads")
_KV_KEYS = ("num_key_value_heads", "num_kv_heads")
_HIDDEN_KEYS = ("hidden_size", "n_embd", "d_model")
_FFN_KEYS = ("intermediate_size", "ffn_dim", "n_inner", "d_ff", "ffn_hidden_size", "shared_expert_intermediate_size",
             "shared_intermediate_size")  # fmt: skip
_HEAD_DIM_KEYS = ("head_dim", "d_kv", "v_head_dim", "qk_nope_head_dim", "qk_rope_head_dim")
_POSITION_KEYS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length")
_EXPERT_KEYS = ("num_local_experts", "num_experts", "n_routed_experts")
_CHOSEN_KEYS = ("num_experts_per_tok", "experts_per_token", "num_selected_experts")
_LOW_RANK_KEYS = ("q_lora_rank", "kv_lora_rank")
# Lists with an entry for each layer; what stands for layers by their number.
_PER_LAYER = ("layer_types", "no_rope_layers", "attention_layers", "mlp_layer_types")
_BY_NUMBER = ("mlp_only_layers", "global_attn_every_n_layers")
_FACTORS = ("short_factor", "long_factor")  # of rotary frequencies: one for each pair of a head's numbers
_SHARE = "partial_rotary_factor"  # of a head that rope turns


def sibling(config: Mapping[str, Any], tp: int = 1, *, wide: bool = False, sharing: int = 2) -> dict[str, Any]:
    """A config.json with small sizes; what the model is stays.

    Layers of each kind stay (attention over a window and over all, dense and with experts), shared key-value heads,
    tied or separate embeddings, biases, norms, experts, low ranks of attention, positions.

    Args:
        config: A model's config.json.
        tp: Tensor-parallel degree; heads and vocabulary become multiples of it.
        wide: Tensors large enough for DeepSpeed to swap them to NVMe.
        sharing: Ranks that share a tensor of a wide one; the embedding is as large for every pair of them.
    """
    small = dict(config)
    heads = math.lcm(_HEADS, max(tp, 1) * (2 if tp > 1 and _is_grouped(config) else 1))
    head_dim = _WIDE_HEAD_DIM if wide else _HEAD_DIM
    hidden = heads * head_dim
    _put(small, _HEAD_KEYS, heads)
    _put(small, _HIDDEN_KEYS, hidden)
    _put(small, _FFN_KEYS, _WIDE_INNER if wide else 2 * hidden)
    _put(small, ("moe_intermediate_size",), _WIDE_INNER if wide else hidden)
    _put(small, ("vocab_size",), math.lcm(_WIDE_VOCAB * math.ceil(sharing / 2) if wide else _VOCAB, max(tp, 1)))
    _put(small, _POSITION_KEYS, _POSITIONS)
    _put(small, _LOW_RANK_KEYS, 2 * head_dim)
    _put(small, ("sliding_window", "window_size"), _WINDOW)
    if "word_embed_proj_dim" in config and config.get("word_embed_proj_dim") != config.get("hidden_size"):
        small["word_embed_proj_dim"] = hidden // 2  # a projection beside the embedding stays one
        _put(small, ("vocab_size",), small["vocab_size"] * (2 if wide else 1))
    elif "word_embed_proj_dim" in config:
        small["word_embed_proj_dim"] = hidden
    _share_heads(small, config, heads, tp)
    _size_heads(small, config, hidden, head_dim, heads)
    _choose_layers(small, config)
    _choose_experts(small)
    return small


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _put(small: dict[str, Any], keys: tuple[str, ...], value: int) -> None:
    """Set a size under every name that the config has it under; what is null or no number stays."""
    for key in keys:
        if _is_size(small.get(key)):
            small[key] = value


def _first(config: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    return next((config[key] for key in keys if _is_size(config.get(key))), None)


def _is_grouped(config: Mapping[str, Any]) -> bool:
    """Whether several query heads share one of several key-value heads."""
    query, shared = _first(config, _HEAD_KEYS), _first(config, _KV_KEYS)
    return query is not None and shared is not None and 1 < shared < query


def _share_heads(small: dict[str, Any], config: Mapping[str, Any], heads: int, tp: int) -> None:
    """Key-value heads: one stays one, as many as query heads stay as many, anything between stays between."""
    if _is_grouped(config):
        _put(small, _KV_KEYS, tp if tp > 1 else _GROUPS)
    elif _first(config, _KV_KEYS) != 1:
        _put(small, _KV_KEYS, heads)


def _size_heads(small: dict[str, Any], config: Mapping[str, Any], hidden: int, head_dim: int, heads: int) -> None:
    """The size of a head where the config says it: twice as large if heads together are not as wide as the model."""
    query, width, own = _first(config, _HEAD_KEYS), _first(config, _HIDDEN_KEYS), _first(config, ("head_dim", "d_kv"))
    apart = query is not None and own is not None and own * query != width
    size = 2 * head_dim if apart else hidden // heads
    _put(small, _HEAD_DIM_KEYS, size)
    if _is_size(config.get("rotary_dim")):
        small["rotary_dim"] = size // 2
    small |= _whole_pairs(config, size)
    for name in ("rope_scaling", "rope_parameters"):
        section = config.get(name)
        if not isinstance(section, Mapping):
            continue
        share = config.get(_SHARE, section.get(_SHARE, 1.0))
        pairs = int(size * share) // 2 if isinstance(share, (int, float)) else size // 2
        short = {key: section[key][:pairs] for key in _FACTORS if isinstance(section.get(key), list)}
        small[name] = {**section, **short, **_whole_pairs(section, size)}


def _whole_pairs(section: Mapping[str, Any], size: int) -> dict[str, float]:
    """The share of a head that rope turns, where it would be an odd number of elements: 3 of 8 at Phi-2's 0.4."""
    share = section.get(_SHARE)
    turned = int(size * share) if isinstance(share, float) else 0
    return {_SHARE: (turned + 1) / size} if turned % 2 else {}


def _choose_layers(small: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Two layers, or one of each kind where there are more kinds."""
    kept = list(range(_LAYERS))
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and kinds:
        firsts = sorted({kind: index for index, kind in reversed(list(enumerate(kinds)))}.values())
        kept = firsts if len(firsts) >= _LAYERS else kept[: len(kinds)]
    _put(small, _LAYER_KEYS, len(kept))
    for name in _PER_LAYER:
        listed = config.get(name)
        if isinstance(listed, list):
            small[name] = [listed[index] for index in kept if index < len(listed)]
    for name in _BY_NUMBER:
        listed = config.get(name)
        if isinstance(listed, list):
            small[name] = [number for number in listed if number == 0]
    _put(small, ("first_k_dense_replace",), 1)  # a dense layer, then one with experts
    for name in ("sliding_window_pattern", "_sliding_window_pattern", "no_rope_layer_interval"):
        _put(small, (name,), _LAYERS)
    _put(small, ("max_window_layers",), _LAYERS // 2)


def _choose_experts(small: dict[str, Any]) -> None:
    if (number := _first(small, _EXPERT_KEYS)) is None:
        return
    chosen = _first(small, _CHOSEN_KEYS) or _CHOSEN
    _put(small, _EXPERT_KEYS, min(number, _EXPERTS))
    _put(small, _CHOSEN_KEYS, min(chosen, _CHOSEN))
    grouped = _GROUPED_BY_DEFAULT if "n_group" not in small else ()
    if (_first(small, ("n_group",)) or 1) > 1 or small.get("model_type") in grouped:
        small["n_group"], small["topk_group"] = _EXPERT_GROUPS, 1
