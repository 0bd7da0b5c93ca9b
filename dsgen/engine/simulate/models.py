"""The real Hugging Face class at full size, built from a config.json: no weights, no download, no remote code."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable
from typing import Any

import torch

from dsgen.engine.simulate import adapters, attention, checkpointing, liger, losses
from dsgen.engine.simulate.errors import NoLanguageModelError, UnknownModelError
from dsgen.engine.simulate.quantized import quantize
from dsgen.engine.simulate.requests import LIGERS

__all__ = ["base", "build", "elements", "head", "known"]

# Keys of a config.json that say how its weights are stored or loaded, not what the model is.
_LEFT_OUT = ("auto_map", "quantization_config", "_attn_implementation", "torch_dtype", "dtype", "model_type")


def build(request: dict[str, Any], config: dict[str, Any]) -> Any:
    """A language model as a training program would have it before `deepspeed.initialize`.

    Below stage 3 it is on the host, as from_pretrained leaves it; at stage 3 it is made under `deepspeed.zero.Init`,
    as transformers does where a DeepSpeed config is known, unless zero_init is false; with 4-bit weights it is on the
    GPU at every stage.

    Args:
        request: The request: model, attention, checkpointing, dtype, method and the keys of adapters and losses.
        config: The DeepSpeed config.

    Raises:
        ValueError: The model_type is unknown to transformers, or has no language model that makes text; targets of
            another length than its tokens for a decoder alone.
    """
    import deepspeed

    hf_config, auto, kind = known(request["model"])
    if request["target_len"] is not None and not hf_config.is_encoder_decoder:
        raise ValueError(
            f"target_len is {request['target_len']}; it must be left out where a model is a decoder alone: its targets "
            "are its own tokens"
        )
    stage = int((config.get("zero_optimization") or {}).get("stage", 0))
    implementation = attention.implementation(request["attention"], kind)
    dtype = getattr(torch, request["dtype"])
    quantized = request["method"] == "qlora"
    with contextlib.ExitStack() as stack:
        if quantized:  # transformers makes no use of zero.Init for such a model
            stack.enter_context(torch.device("meta"))
        elif stage == 3 and request["zero_init"]:
            stack.enter_context(deepspeed.zero.Init(config_dict_or_path=config))
        model = auto.from_config(hf_config, attn_implementation=implementation, dtype=dtype)
        # What tying has replaced refers to itself (zero.Init gives each tensor methods of its own): when Python finds
        # that out is chance, and until then such shares stay in the host's RAM if parameters are offloaded.
        gc.collect()
    if quantized:
        quantize(model, dtype, request["double_quantization"])
    if request["chunked_loss"]:
        losses.replace(model, (request["older_loss"] or {}).get("liger", LIGERS[-1]))
    elif request["older_loss"]:
        losses.older(model, **request["older_loss"])
    if request["liger_kernels"]:
        liger.replace(model, request["liger_kernels"])
    if request["checkpointing"]:
        checkpointing.enable(model, request["reentrant"])
    if request["method"] != "full":
        model = adapters.adapt(model, request, stage)
    return model.train()


def known(described: dict[str, Any]) -> tuple[Any, Any, Any]:
    """The config object of a config.json, what makes its language model, and the class of that."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    name = described["model_type"]
    if name not in CONFIG_MAPPING:
        remote = (
            "; its auto_map names code of the model's folder, which is never run" if "auto_map" in described else ""
        )
        raise UnknownModelError(f"transformers has no model_type {name!r}{remote}")
    # Token ids have no shape, but a padding index outside a small vocabulary is refused.
    ids: dict[str, Any] = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    facts = {key: value for key, value in described.items() if key not in _LEFT_OUT}
    hf_config = AutoConfig.for_model(name, **{**ids, **facts})
    hf_config.use_cache = False
    causal = type(hf_config) in AutoModelForCausalLM._model_mapping
    if not causal and type(hf_config) in AutoModelForSeq2SeqLM._model_mapping:
        hf_config.pad_token_id = hf_config.decoder_start_token_id = 0  # the decoder's input is made with them
        return hf_config, AutoModelForSeq2SeqLM, AutoModelForSeq2SeqLM._model_mapping[type(hf_config)]
    if not causal:
        raise NoLanguageModelError(f"transformers has no causal language model for model_type {name!r}")
    if type(hf_config) in AutoModelForMaskedLM._model_mapping and not getattr(hf_config, "is_decoder", False):
        raise NoLanguageModelError(f"a model of model_type {name!r} is an encoder: it does not predict the next token")
    # Loads the class's module, which must not happen inside zero.Init: it changes torch's factories.
    kind = AutoModelForCausalLM._model_mapping[type(hf_config)]
    return hf_config, AutoModelForCausalLM, kind


def base(model: Any) -> Any:
    """The Hugging Face model, with or without adapters around it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def elements(parameters: Iterable[Any]) -> int:
    """Elements of weights: of partitioned ones the whole, of 4-bit ones what they stand for."""
    counted = (getattr(one, "elements_in_4_bits", None) or getattr(one, "ds_numel", one.numel()) for one in parameters)
    return sum(int(number) for number in counted)


def head(model: Any) -> tuple[frozenset[int], tuple[int, ...]]:
    """Last dimensions that mark logits, and the shape of the weight that makes them."""
    config = model.config.get_text_config()
    weight = model.get_output_embeddings().weight
    shape = tuple(getattr(weight, "ds_shape", weight.shape))
    sizes = {int(config.vocab_size), int(shape[0])}
    return frozenset(sizes - {int(config.hidden_size)}), shape
