"""Hugging Face's config.json: the `model` facts that it holds, and the config that such facts make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from dsgen.families import FAMILIES
from dsgen.families.family import Family
from dsgen.families.reading import WRITTEN_DROPOUT, Reader
from dsgen.shapes.errors import mistake, nearest
from dsgen.shapes.near_misses import offer
from dsgen.shapes.profiles import Model

__all__ = ["model_from_hf", "to_hf_config"]

_OPTIONAL = {field.name: field.default for field in attrs.fields(Model) if field.default is not attrs.NOTHING}

# What else lies in a model's folder or near it, by keys that only such a file has.
_OTHER_FILES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu"), "a DeepSpeed config"),
    (("tokenizer_class", "added_tokens_decoder", "chat_template", "added_tokens"), "a tokenizer's config"),
    (("peft_type", "base_model_name_or_path"), "a PEFT adapter's config"),
    (("weight_map",), "an index of checkpoint shards"),
    (("_diffusers_version", "_class_name"), "a diffusers config"),
    (("do_sample", "max_new_tokens", "temperature", "_from_model_config"), "a generation config"),
)


def model_from_hf(config: Mapping[str, object], where: str) -> dict[str, object]:
    """The `model:` facts of a parsed config.json, under their YAML names, as plain values.

    A multimodal file gives its `text_config`. A key that is left out takes the default of the model_type's class;
    Hugging Face writes a nested part without its defaults, so there every key may be left out.

    Args:
        config: The file's content.
        where: The file, for messages.

    Raises:
        DsgenError: Not a model's config, an unsupported model_type or variant, a missing or mistyped value.
    """
    nested = config.get("text_config")
    part = nested if isinstance(nested, Mapping) else config
    family = _family(config, part, where)
    # No built-in profile has an encoder.
    reader = Reader(part, where, nested=part is not config, has_profiles=not family.encodes)
    for name, required in family.pinned.items():
        reader.demand(name, required)

    facts: dict[str, object] = {"architecture": family.model_type}
    sizes: dict[str, int] = {}
    for key in family.keys:
        value = reader.value(key, sizes)
        facts[key.fact] = value
        if not isinstance(value, bool):
            sizes[key.fact] = value
    facts["gated_ffn"] = family.gated
    if not isinstance(part.get("tie_word_embeddings"), bool) and isinstance(config.get("tie_word_embeddings"), bool):
        facts["tied_embeddings"] = config["tie_word_embeddings"]
    facts |= family.read(reader, facts)
    if family.rotated:
        family.rotated.check(reader, sizes["head_size"])
    if family.dropouts:
        facts["dropout"] = reader.dropout(family.dropouts)
    return {fact: value for fact, value in facts.items() if fact not in _OPTIONAL or value != _OPTIONAL[fact]}


def to_hf_config(facts: Mapping[str, object]) -> dict[str, object]:
    """The config.json, as a dict, of a model with these facts; `model_from_hf` reads the same facts back.

    Args:
        facts: What `model_from_hf` gives, or the `model:` part of a profile.

    Raises:
        DsgenError: The architecture is not supported.
    """
    family = _family({"model_type": facts.get("architecture")}, {}, "model.architecture")
    whole: dict[str, Any] = {**_OPTIONAL, **facts}
    config: dict[str, object] = {"model_type": family.model_type, **family.pinned}
    for key in family.keys:
        if key.names:
            config[key.names[0]] = whole[key.fact]
    if "sliding_window" in config:
        config["sliding_window"] = config["sliding_window"] or None
    config |= family.write(whole)
    if family.rotated:
        config["partial_rotary_factor"] = family.rotated.written(whole["head_size"])
    return config | dict.fromkeys(family.dropouts, WRITTEN_DROPOUT if whole["dropout"] else 0.0)


def _family(config: Mapping[str, object], part: Mapping[str, object], where: str) -> Family:
    model_type = part.get("model_type") or config.get("model_type")
    if model_type is None:
        for keys, name in _OTHER_FILES:
            if any(key in config for key in keys):
                raise mistake(
                    f"this is {name}, not a model's config.json",
                    must="it must have a model_type",
                    where=where,
                    todo="Give the config.json that lies beside the model's weights.",
                )
        raise mistake(
            "no model_type",
            must="a model's config.json has one",
            where=where,
            todo="Give the config.json that lies beside the model's weights.",
        )
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        if isinstance(config.get("vision_config"), Mapping):
            raise mistake(
                f"model_type is {model_type!r}, a model that sees",
                must="dsgen counts what reads text",
                where=where,
                todo="Plan the text model that it was built on (--model qwen2.5-7b for Qwen2.5-VL-7B); "
                "the vision tower comes on top and is not counted.",
            )
        near = nearest(model_type, FAMILIES) if isinstance(model_type, str) else ()
        hint = f"{offer(near)}  " if near else ""
        raise mistake(
            f"model_type is {model_type!r}",
            must="it must be one that dsgen knows",
            where=where,
            todo=f"{hint}Known: {', '.join(FAMILIES)}. For another, write a model profile after the nearest of these.",
        )
    return FAMILIES[model_type]
