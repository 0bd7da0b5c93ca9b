"""The real Hugging Face class at full size, built from a config.json: no weights, no download, no remote code."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from dsgen.engine import simulate_attention

__all__ = ["build", "head"]


def build(request: dict[str, Any], config: dict[str, Any]) -> Any:
    """A causal language model as a training program would have it before `deepspeed.initialize`.

    Below stage 3 it is on the host, as from_pretrained leaves it; at stage 3 it is made under `deepspeed.zero.Init`,
    as transformers does where a DeepSpeed config is known.

    Args:
        request: The request: model, attention, checkpointing, dtype.
        config: The DeepSpeed config.
    """
    import deepspeed
    from transformers import AutoConfig, AutoModelForCausalLM

    facts = dict(request["model"])
    for key in ("auto_map", "quantization_config", "_attn_implementation", "torch_dtype", "dtype"):
        facts.pop(key, None)
    # Token ids have no shape, but a padding index outside a small vocabulary is refused.
    ids = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    hf_config = AutoConfig.for_model(facts.pop("model_type"), **{**ids, **facts})
    hf_config.use_cache = False
    # Loads the class's module, which must not happen inside zero.Init: it changes torch's factories.
    if type(hf_config) not in AutoModelForCausalLM._model_mapping:
        raise ValueError(f"transformers has no causal language model for model_type {hf_config.model_type!r}")
    AutoModelForCausalLM._model_mapping[type(hf_config)]
    stage = int(config.get("zero_optimization", {}).get("stage", 0))
    implementation = simulate_attention.implementation(request["attention"])
    dtype = getattr(torch, request["dtype"])
    with contextlib.ExitStack() as stack:
        if stage == 3:
            stack.enter_context(deepspeed.zero.Init(config_dict_or_path=config))
        model = AutoModelForCausalLM.from_config(hf_config, attn_implementation=implementation, dtype=dtype)
    if request["checkpointing"]:
        model.gradient_checkpointing_enable()
    return model.train()


def head(model: Any) -> tuple[frozenset[int], tuple[int, ...]]:
    """Last dimensions that mark logits, and the shape of the weight that makes them."""
    config = model.config.get_text_config()
    weight = model.get_output_embeddings().weight
    shape = tuple(getattr(weight, "ds_shape", weight.shape))
    sizes = {int(config.vocab_size), int(shape[0])}
    return frozenset(sizes - {int(config.hidden_size)}), shape
