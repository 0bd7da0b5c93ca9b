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
# the same layers (LayerNorm, GELU, biases) and takes the same memory but for a table of positions.
_TYPES = {
    "bloom": "bloom",
    "falcon": "falcon",
    "gemma-2-": "gemma2",
    "gemma": "gemma",
    "gpt 175b": "gpt2",
    "gpt 530b": "gpt2",
    "gpt 1t": "gpt2",
    "gpt 2t": "gpt2",
    "gpt2": "gpt2",
    "ibm granite-7b-base": "llama",
    "llama": "llama",
    "mistral": "mistral",
    "mpt": "gpt_neox",
    "open-llama": "llama",
    "opt": "opt",
    "phi-1": "phi",
    "phi-2": "phi",
    "phi-3": "phi3",
    "pythia": "gpt_neox",
    "qwen": "qwen2",
    "qwq": "qwen2",
    "stablelm-base-alpha": "gpt_neox",
    "t5-": "t5",
    "tinyllama": "llama",
    "yi": "llama",
}
_GATED = frozenset({"llama", "mistral", "qwen2", "gemma", "gemma2", "phi3"})
_STACKS = 2  # T5's encoder and decoder have half of the stated blocks each
_BUCKETS = 32  # distances with a bias (relative_attention_num_buckets of its published files)
_ANY_HARDWARE = "a100-80g"  # a model's facts do not depend on it
_COMPARED = ("architecture", "layers", "hidden_size", "attention_heads", "kv_heads", "ffn_size", "vocab_size")
_LITGPT = ("litr", "lith")  # its GPT has a head of its own, whatever the checkpoint (litgpt/model.py)

# What a record's query, key and value are called, by model_type; a fused matrix stands for each of its parts.
_ATTENTION = {
    "gpt_neox": dict.fromkeys("qkv", ("query_key_value",)),
    "falcon": dict.fromkeys("qkv", ("query_key_value",)),
    "phi3": dict.fromkeys("qkv", ("qkv_proj",)),
}
_PLAIN = {part: (f"{part}_proj",) for part in "qkv"}
_FEED_FORWARD = ("gate_proj", "up_proj", "down_proj")
_AS_THEY_ARE = ("all-linear", "lm_head")


def type_of(record: Mapping[str, Any]) -> str | None:
    """The model_type of a record's model; None where dsgen has none for it.

    transformers leaves Falcon's layers in 16 bits where bitsandbytes makes others 4. LitGPT's own class does not: Phi
    has the same block (one norm, attention and feed-forward part beside each other), of layers that it makes 4 bits.
    """
    name = record["model"]["name"].lower()
    found = next((found for start, found in _TYPES.items() if name.startswith(start)), None)
    packed = record["id"].startswith(_LITGPT) and record["config"].get("quantization")
    return "phi" if packed and found == "falcon" else found


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
        gated_ffn=kind in _GATED,
    )
    for profile in _profiles():
        if all(getattr(profile, name) == getattr(made, name) for name in _COMPARED):
            same = made.tied_embeddings if litgpt or "tied" in facts else profile.tied_embeddings
            longest = max(profile.max_positions, made.max_positions)
            return attrs.evolve(profile, tied_embeddings=same, max_positions=longest)
    return made


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
        else:
            return None
    return tuple(dict.fromkeys(found)) or None
