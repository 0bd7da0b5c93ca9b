"""Hugging Face's config.json: the `model` facts that it holds, and the config that such facts make."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from dsgen.families.hf_encoders import ENCODER_DECODERS, read_encoder, written_encoder
from dsgen.families.hf_keys import FAMILIES
from dsgen.families.hf_names import AS_ENCODER, FLOORED, FOUR_H, HEADS, SPLIT, Family, Key
from dsgen.families.hf_variants import (
    ROTATED,
    demand_fused,
    demand_rope,
    demand_rotated,
    read_dropout,
    read_falcon,
    rotated_share,
    written_dropout,
)
from dsgen.shapes.errors import DsgenError, mistake, nearest
from dsgen.shapes.profiles import Model

__all__ = ["model_from_hf", "to_hf_config"]

_ESSENTIAL = ("encoder_layers", "layers", "hidden_size", "attention_heads", "ffn_size", "vocab_size")
_QWEN = ("qwen2", "qwen3", "qwen3_moe")  # their sliding_window is in force only with use_sliding_window
_SHARED = "shared_expert_intermediate_size"
_GROUPED = "group_limited_greedy"
_NOPE = 128  # default of qk_nope_head_dim of DeepseekV2Config and DeepseekV3Config
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
    model_type, family = _family(config, part, where)
    reader = _Reader(part, where, nested=part is not config)
    for name, required in family.pinned.items():
        reader.demand(name, required)

    facts: dict[str, object] = {"architecture": model_type}
    sizes: dict[str, int] = {}
    for key in family.keys:
        value = reader.value(key, sizes)
        facts[key.fact] = value
        if not isinstance(value, bool):
            sizes[key.fact] = value
    facts["gated_ffn"] = family.gated
    if not isinstance(part.get("tie_word_embeddings"), bool) and isinstance(config.get("tie_word_embeddings"), bool):
        facts["tied_embeddings"] = config["tie_word_embeddings"]
    _read_variant(model_type, reader, facts, sizes)
    return {fact: value for fact, value in facts.items() if fact not in _OPTIONAL or value != _OPTIONAL[fact]}


def to_hf_config(facts: Mapping[str, object]) -> dict[str, object]:
    """The config.json, as a dict, of a model with these facts; `model_from_hf` reads the same facts back.

    Args:
        facts: What `model_from_hf` gives, or the `model:` part of a profile.

    Raises:
        DsgenError: The architecture is not supported.
    """
    model_type, family = _family({"model_type": facts.get("architecture")}, {}, "model.architecture")
    whole = {**_OPTIONAL, **facts}
    config: dict[str, object] = {"model_type": model_type, **family.pinned}
    for key in family.keys:
        if key.names:
            config[key.names[0]] = whole[key.fact]
    if "sliding_window" in config:
        config["sliding_window"] = config["sliding_window"] or None
    _write_variant(model_type, whole, config)
    return config


def _family(config: Mapping[str, object], part: Mapping[str, object], where: str) -> tuple[str, Family]:
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
        near = nearest(model_type, FAMILIES) if isinstance(model_type, str) else ()
        hint = f"Did you mean {' or '.join(near)}? " if near else ""
        raise mistake(
            f"model_type is {model_type!r}",
            must="it must be one that dsgen knows",
            where=where,
            todo=f"{hint}Known: {', '.join(FAMILIES)}. For another, write a model profile after the nearest of these.",
        )
    return model_type, FAMILIES[model_type]


@attrs.frozen
class _Reader:
    """Typed reading of one part of a config."""

    part: Mapping[str, object]
    where: str
    nested: bool

    def value(self, key: Key, sizes: Mapping[str, int]) -> int | bool:
        """The value of one fact: as written, or the class's default."""
        name = next((name for name in key.names if self.part.get(name) is not None), None)
        if name is not None:
            if isinstance(key.default, bool):
                return self.boolean(name, key.default)
            bounds = attrs.fields_dict(Model)[key.fact].metadata
            least = 1 if key.fact == "encoder_layers" else bounds["minimum"]  # only a class with an encoder has the key
            return self.integer(name, least, bounds["below"])
        default: int | bool | str = key.default
        if key.null is not None and any(name in self.part for name in key.names):
            default = key.null
        if isinstance(default, str):
            return self._derived(default, sizes)
        if key.fact in _ESSENTIAL and not self.nested:
            raise mistake(
                f"no {key.names[0]}",
                must="the config.json of a model has it",
                where=self.where,
                todo="Give the whole config.json, as it lies beside the model's weights.",
            )
        return default

    def _derived(self, rule: str, sizes: Mapping[str, int]) -> int:
        hidden, heads = sizes["hidden_size"], sizes["attention_heads"]
        if rule in (AS_ENCODER, HEADS):
            return heads if rule == HEADS else sizes["encoder_layers"]
        if rule == FOUR_H:
            return 4 * hidden
        if rule == FLOORED:
            return max(1, hidden // heads)
        assert rule == SPLIT
        if hidden % heads:
            raise mistake(
                f"hidden_size {hidden} is no multiple of {heads} attention heads",
                must="it must be, or head_dim must be given",
                where=self.where,
            )
        return hidden // heads

    def integer(self, name: str, minimum: int, below: int | None = None) -> int:
        """A whole number; true, 1.9 and "32" are none."""
        value = self.part.get(name)
        if type(value) is not int or value < minimum:
            raise mistake(
                f"{name} is {value!r}", must=f"it must be a whole number of at least {minimum}", where=self.where
            )
        if below is not None and value >= below:
            raise mistake(f"{name} is {value:,}", must=f"it must be below {below:,}", where=self.where)
        return value

    def boolean(self, name: str, default: bool) -> bool:
        """True or false; 1 and "no" are neither."""
        value = self.part.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise mistake(f"{name} is {value!r}", must="it must be true or false", where=self.where)
        return value

    def demand(self, name: str, required: bool | int | float | str | None) -> None:
        """Refuse a variant that the layouts do not hold."""
        value = self.part.get(name)
        if value is not None and value != required:
            raise self.unsupported(
                f"{name} is {value!r}", f"dsgen counts this model_type with {str(required).lower()} only"
            )

    def unsupported(self, what: str, must: str) -> DsgenError:
        """The error of a variant of a known model_type."""
        encoder = self.part.get("model_type") in ENCODER_DECODERS  # no built-in profile has an encoder
        return mistake(
            what,
            must=must,
            where=self.where,
            todo=None if encoder else "Take the nearest built-in model profile instead (dsgen profiles list).",
        )


def _read_variant(model_type: str, reader: _Reader, facts: dict[str, object], sizes: Mapping[str, int]) -> None:
    """What a model_type says in a way of its own."""
    if model_type in _QWEN and not reader.boolean("use_sliding_window", False):
        facts["sliding_window"] = 0
    if model_type in ("granitemoe", "mixtral", "gpt_oss", "olmoe"):
        facts["expert_ffn_size"] = sizes["ffn_size"]
    elif model_type in ("qwen2_moe", "qwen3_moe"):
        facts["dense_layers"] = _leading(reader, sizes["layers"])
        if model_type == "qwen2_moe" and not facts["shared_ffn_size"]:
            raise reader.unsupported(f"{_SHARED} is 0", "dsgen counts this model_type with a shared expert only")
    elif model_type in ("deepseek_v2", "deepseek_v3"):
        nope = reader.integer("qk_nope_head_dim", 1) if reader.part.get("qk_nope_head_dim") is not None else _NOPE
        facts["head_size"] = nope + sizes["qk_rope_head_size"]
        if model_type == "deepseek_v2":
            facts["expert_groups"] = _groups(reader)
    elif model_type == "opt":
        facts["post_norm"] = not reader.boolean("do_layer_norm_before", True)
        if facts["embedding_size"] == facts["hidden_size"]:
            facts["embedding_size"] = 0
    elif model_type == "falcon":
        read_falcon(reader, facts)
    if model_type == "gpt_bigcode":
        demand_fused(reader, "activation_function")
    if model_type == "smollm3":
        demand_rope(reader, sizes["layers"])
    if model_type in ENCODER_DECODERS:
        facts["gated_ffn"] = read_encoder(model_type, reader)
    if model_type in ROTATED:
        demand_rotated(model_type, reader, sizes["head_size"])
    if FAMILIES[model_type].dropouts:
        facts["dropout"] = read_dropout(FAMILIES[model_type], reader)


def _groups(reader: _Reader) -> int:
    """How many groups of experts DeepseekV2TopkRouter picks from first."""
    method = reader.part.get("topk_method")
    if method in (None, "greedy"):
        return 0
    if method != _GROUPED:
        raise reader.unsupported(f"topk_method is {method!r}", f"the class of deepseek_v2 knows greedy and {_GROUPED}")
    return reader.integer("n_group", 1)


def _leading(reader: _Reader, layers: int) -> int:
    """How many of the first blocks are dense, of Qwen's list of dense blocks."""
    listed = reader.part.get("mlp_only_layers")
    if listed is None:
        return 0
    if not isinstance(listed, list) or not all(type(block) is int and block == i for i, block in enumerate(listed)):
        raise reader.unsupported(f"mlp_only_layers is {listed!r}", "dsgen counts dense blocks only before the others")
    return min(len(listed), layers)


def _write_variant(model_type: str, facts: Mapping[str, object], config: dict[str, object]) -> None:
    """The inverse of `_read_variant`."""
    if model_type in _QWEN:
        config["use_sliding_window"] = config["sliding_window"] is not None
    if model_type in ("qwen2_moe", "qwen3_moe"):
        dense = facts["dense_layers"]
        config["mlp_only_layers"] = list(range(dense)) if isinstance(dense, int) else []
    elif model_type in ("deepseek_v2", "deepseek_v3"):
        head, rope = facts["head_size"], facts["qk_rope_head_size"]
        assert isinstance(head, int) and isinstance(rope, int)
        config["qk_nope_head_dim"] = head - rope
        config["q_lora_rank"] = config["q_lora_rank"] or None
        config["v_head_dim"] = config["v_head_dim"] or head
        if model_type == "deepseek_v2":
            groups = facts["expert_groups"]
            grouped = {"topk_method": _GROUPED, "n_group": groups, "topk_group": 1}
            config.update(grouped if groups else {"topk_method": "greedy"})
    elif model_type == "opt":
        config["do_layer_norm_before"] = not facts["post_norm"]
        config["word_embed_proj_dim"] = config["word_embed_proj_dim"] or facts["hidden_size"]
    elif model_type == "falcon":
        config["new_decoder_architecture"] = facts["kv_heads"] != 1
        config["multi_query"] = facts["kv_heads"] == 1
    if model_type in ENCODER_DECODERS:
        config |= written_encoder(model_type, facts)
    if model_type in ROTATED:
        config["partial_rotary_factor"] = rotated_share(model_type, facts)
    config |= written_dropout(FAMILIES[model_type], facts)
