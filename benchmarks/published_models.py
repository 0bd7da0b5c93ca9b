"""The model of a record: a profile of the same shape, else one made of the sizes that the record states."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import attrs

from dsgen import catalog
from dsgen.jobs.assembly import assemble
from dsgen.jobs.scenarios import Scenario, layers
from dsgen.shapes.profiles import Model

__all__ = ["model_of", "targets_of", "type_of"]

# The beginning of a model's name in the records, lower case -> model_type. MPT has none of dsgen's types: GPT-NeoX has
# the same layers (LayerNorm, GELU, biases) and takes the same memory but for a table of positions. Megatron's GPT has
# those of GPT-2; InternLM's 7B those of Llama, and three biases more; PowerLM is Granite's architecture. GLM-4's first
# code, ChatGLM's own, has Phi-3's fused matrices, and a bias more (THUDM/glm-4-9b, modeling_chatglm.py).
_TYPES = {
    "baichuan-7b": "llama",
    "baichuan2-7b": "llama",
    "bloom": "bloom",
    "chatglm2": "phi3",
    "deepseek-math": "llama",
    "falcon": "falcon",
    "flan-t5": "t5",
    "gemma-2-": "gemma2",
    "gemma-3-": "gemma3_text",
    "gemma": "gemma",
    "glm-4": "phi3",
    "gpt 175b": "gpt2",
    "gpt 530b": "gpt2",
    "gpt 1t": "gpt2",
    "gpt 2t": "gpt2",
    "gpt-j": "gptj",
    "gpt-neo": "gpt2",
    "gpt/bloom": "bloom",
    "gpt2": "gpt2",
    "granite-3.0-3b-a800m": "granitemoe",
    "granite-3": "granite",
    "ibm granite-7b-base": "llama",
    "internlm": "llama",
    "llama": "llama",
    "mistral": "mistral",
    "mixtral": "mixtral",
    "mpt": "gpt_neox",
    "open-llama": "llama",
    "opt-350 shape": "gpt2",
    "opt": "opt",
    "phi-1": "phi",
    "phi-2": "phi",
    "phi-3": "phi3",
    "powerlm": "granite",
    "pythia": "gpt_neox",
    "qwen3-30b-a3b": "qwen3_moe",
    "qwen3": "qwen3",
    "qwen": "qwen2",
    "qwq": "qwen2",
    "santacoder": "gpt_bigcode",
    "stablelm-base-alpha": "gpt_neox",
    "starcoder": "gpt_bigcode",
    "t5-": "t5",
    "tinyllama": "llama",
    "yi": "llama",
}
_GATED = frozenset(
    {
        *("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe"),
        *("gemma", "gemma2", "gemma3_text", "phi3"),
        "granite",
        "granitemoe",
    }
)
_GATED_T5 = "flan-t5"  # T5 1.1: its feed-forward part has a gate
_STACKS = 2  # T5's encoder and decoder have half of the stated blocks each
_BUCKETS = 32  # distances with a bias (relative_attention_num_buckets of its published files)
_ANY_HARDWARE = "a100-80g"  # a model's facts do not depend on it
_COMPARED = (
    *("architecture", "layers", "hidden_size", "attention_heads", "kv_heads", "vocab_size"),
    *("experts", "experts_per_token"),
)
_LITGPT = ("litr", "lith")  # its GPT has a head of its own, whatever the checkpoint (litgpt/model.py)

# What a record's query, key and value are called, by model_type; a fused matrix stands for each of its parts.
_ATTENTION = {
    "gpt_neox": dict.fromkeys("qkv", ("query_key_value",)),
    "falcon": dict.fromkeys("qkv", ("query_key_value",)),
    "gpt_bigcode": {**dict.fromkeys("qkv", ("c_attn",)), "o": ()},  # of what Llama's names, none is there
    "phi3": {**dict.fromkeys("qkv", ("qkv_proj",)), "o": ("o_proj",)},
}
_PLAIN = {part: (f"{part}_proj",) for part in "qkvo"}
_OF_ANOTHER_TYPE = "c_attn"  # a list for models of several types: peft takes of it what a model has
_FEED_FORWARD = ("gate_proj", "up_proj", "down_proj")
_AS_THEY_ARE = ("all-linear", "lm_head")


def type_of(record: Mapping[str, Any]) -> str | None:
    """The model_type of a record's model; None where dsgen has none for it.

    transformers leaves Falcon's layers in 16 bits where bitsandbytes makes others 4. LitGPT's own class does not: Phi
    has the same block (one norm, attention and feed-forward part beside each other), of layers that it makes 4 bits.
    Its Phi-3 has two matrices for the gate, which transformers joins: it is Llama there (litgpt/model.py, LLaMAMLP).
    What a record is `timed_as` may be another type than what it is weighed as (published_speed_facts.py).
    """
    if "timed_as" in record:
        return str(record["timed_as"])
    name = record["model"]["name"].lower()
    found = next((found for start, found in _TYPES.items() if name.startswith(start)), None)
    litgpt = record["id"].startswith(_LITGPT)
    if litgpt and found == "phi3":
        return "llama"
    return "phi" if litgpt and found == "falcon" and record["config"].get("quantization") else found


def model_of(record: Mapping[str, Any]) -> Model:
    """The model of a record: of a profile with the same sizes, else made of them."""
    facts, kind = record["model"], type_of(record)
    assert kind is not None
    litgpt = record["id"].startswith(_LITGPT)
    encodes = kind == "t5"
    tied = encodes or (bool(facts.get("tied")) and not litgpt)
    blocks = facts["layers"] // _STACKS if encodes else facts["layers"]
    made = Model(
        architecture=kind,
        layers=blocks,
        encoder_layers=blocks if encodes else 0,
        relative_buckets=_BUCKETS if encodes else 0,
        dropout=encodes,
        hidden_size=facts["hidden"],
        attention_heads=facts["heads"],
        kv_heads=facts["kv_heads"],
        head_size=facts.get("head_dim") or facts["hidden"] // facts["heads"],
        ffn_size=facts["ffn"],
        vocab_size=facts["vocab"],
        max_positions=facts["seq_len"],
        tied_embeddings=tied,
        gated_ffn=kind in _GATED or facts["name"].lower().startswith(_GATED_T5),
        experts=facts.get("experts", 0),
        experts_per_token=facts.get("experts_per_token", 0),
        expert_ffn_size=facts["ffn"] if facts.get("experts") else 0,
    )
    for profile in _profiles():
        if _inner(profile) == _inner(made) and all(getattr(profile, one) == getattr(made, one) for one in _COMPARED):
            same = made.tied_embeddings if litgpt or "tied" in facts else profile.tied_embeddings
            longest = max(profile.max_positions, made.max_positions)
            dropped = profile.dropout and not litgpt  # its GPT drops nothing
            return attrs.evolve(profile, tied_embeddings=same, max_positions=longest, dropout=dropped)
    return made


def _inner(model: Model) -> int:
    """The width of what a token passes between two attentions: of one expert, in a mixture."""
    return model.expert_ffn_size if model.experts else model.ffn_size


@functools.cache
def _profiles() -> tuple[Model, ...]:
    return tuple(
        assemble(layers(Scenario(profiles={"hardware": (_ANY_HARDWARE,), "model": (name,)})), None).model
        for name in catalog.names("model")
    )


def targets_of(record: Mapping[str, Any], model: Model) -> tuple[str, ...] | None:
    """Which matrices of the model get adapters; None where the record's words name none that dsgen knows."""
    attention = _ATTENTION.get(model.architecture, _PLAIN)
    found: list[str] = []
    for word in record["config"]["lora"].get("targets", ()):
        if word in _AS_THEY_ARE or (word in _FEED_FORWARD and model.gated_ffn):
            found.append(word)
        elif word in attention:
            found += attention[word]
        elif word != _OF_ANOTHER_TYPE:
            return None
    return tuple(dict.fromkeys(found)) or None
