"""The tiny sibling of a model: the same family and the same choices, and as little of everything as can be."""

from __future__ import annotations

from typing import Any

import attrs

from dsgen.families import family_of
from dsgen.families.gptj import ROTARY
from dsgen.families.hf_config import to_hf_config
from dsgen.shapes.profiles import Model

__all__ = ["sibling"]

_LAYERS = 2  # one would hide a fault between two layers: prefetch and gather need a next one
_HEADS = 8  # divisible by the usual tensor-parallel degrees 1, 2, 4, 8
_SHARED = 2  # query heads for each key head, where some share one
_HEAD = 8  # the smallest that rotary embeddings take without padding
_OTHERS = 2  # elements of a head for each that is turned, where others are not
_VOCABULARY, _POSITIONS, _WINDOW = 256, 64, 16
_EXPERTS, _GROUPED, _CHOSEN, _INNER = 4, 16, 2, 32  # two for each of the eight groups that deepseek_v3 has by default
_RANK = 16  # of compressed queries and keys


def sibling(model: Model) -> dict[str, Any]:
    """The config.json of a tiny model that takes the same paths through its class as this one does.

    What a model is, it stays: family, tied head, gate, biases, grouped or single key heads, mixture, window, compressed
    attention. Only sizes shrink, so models that differ in sizes alone have one sibling.
    """
    grouped = 1 < model.kv_heads < model.attention_heads
    heads = _HEADS * _SHARED if grouped else _HEADS
    rotated = family_of(model).rotated
    # Some turn so many elements of a head, whatever its size: all of it in GPT-J, and in Phi there are others.
    head = ROTARY if model.architecture == "gptj" else _OTHERS * (rotated.elements if rotated else 0) or _HEAD
    sizes: dict[str, Any] = {
        "layers": _LAYERS,
        "attention_heads": heads,
        "kv_heads": 1 if model.kv_heads == 1 else _HEADS,
        "head_size": head,
        "hidden_size": heads * head,
        "ffn_size": 2 * heads * head,
        "vocab_size": _VOCABULARY,
        "max_positions": _POSITIONS,
    }
    if model.experts:
        experts = _GROUPED if model.kv_lora_rank else _EXPERTS
        sizes |= {"experts": experts, "experts_per_token": _CHOSEN, "expert_ffn_size": _INNER}
    smaller = {
        "shared_experts": 1, "shared_ffn_size": _INNER, "expert_groups": 1, "dense_layers": 1,
        "sliding_window": _WINDOW, "q_lora_rank": _RANK, "kv_lora_rank": _RANK, "qk_rope_head_size": _HEAD // 2,
        "v_head_size": _HEAD, "embedding_size": heads * _HEAD // 2,
    }  # fmt: skip
    sizes |= {name: size for name, size in smaller.items() if getattr(model, name)}
    made: dict[str, Any] = to_hf_config(attrs.asdict(attrs.evolve(model, **sizes)))
    return made
