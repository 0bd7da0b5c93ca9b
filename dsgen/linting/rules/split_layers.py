"""Which layers a partition_config of AutoTP splits, and which of those that must be split together it leaves apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["torn"]

_BLOCKS = (("self_attn", ("q_proj", "k_proj", "v_proj"), "o_proj"), ("mlp", ("gate_proj", "up_proj"), "down_proj"))
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
# What a Llama, Qwen or Mistral calls its layers; DeepSpeed matches the whole name.
_GUESS = (
    _EMBEDDING,
    *(f"model.layers.0.{block}.{layer}.weight" for block, into, out in _BLOCKS for layer in (*into, out)),
    _HEAD,
)


def torn(section: Mapping[str, Any], preset: object, parameters: tuple[str, ...] | None) -> Iterator[tuple[str, str]]:
    """What is split without its partners: its name, and what is wrong with it.

    Args:
        section: The partition_config.
        preset: preset_model, whose layers have their partners: beside one nothing is judged.
        parameters: Names of the model's parameters; a Llama's are tried where nobody knows them, and only if each
            pattern fits one of those. Not every feed-forward has a gate: one that no pattern fits is not missed.
    """
    specs = section.get("layer_specs")
    if not isinstance(specs, list) or not all(_is_plain(spec) for spec in specs):
        return
    if parameters is None and not all(_fits(pattern, _GUESS) for spec in specs for pattern in spec["patterns"]):
        return
    if preset and section.get("use_default_specs", True) is not False:
        return
    names = parameters or _GUESS
    kinds = {name: _kind(specs, name) for name in names}
    for block, into, out in _BLOCKS:
        here = tuple(layer for layer in into if parameters or block == "self_attn" or _named(specs, block, layer))
        yield from _block(kinds, block, here, out)
    if kinds.get(_EMBEDDING, "whole") != "whole" and _kind(specs, _HEAD) != "row":
        yield "model.embed_tokens", "is split, and what follows wants whole vectors"
    if kinds.get(_HEAD) == "column":
        yield "lm_head", "is split by column without gather_output, and the loss wants all of it"


def _block(kinds: Mapping[str, str], block: str, into: tuple[str, ...], out: str) -> Iterator[tuple[str, str]]:
    """The first block of a kind that is torn: all are to be split alike."""
    for name in kinds:
        stem, there, tail = name.partition(f".{block}.{out}.weight")
        if not there or tail:
            continue
        layers = [f"{stem}.{block}.{layer}.weight" for layer in into]
        if not all(layer in kinds for layer in layers):  # another architecture: fused, or with others between
            continue
        ways = {layer: kinds[layer] for layer in layers}
        if ways and all(way == "column" for way in ways.values()) and kinds[name] == "row":
            continue
        if all(way == "whole" for way in ways.values()) and kinds[name] == "whole":
            continue
        said = ", ".join(f"{layer.split('.')[-2]} {way}" for layer, way in {**ways, name: kinds[name]}.items())
        yield f"{stem}.{block}", f"is split in part ({said}; it must be column, and {out} row, or all of it whole)"
        return


def _kind(rules: Iterable[Mapping[str, Any]], name: str) -> str:
    """How the first rule that fits splits a layer: "column", "row", or "whole", as what is gathered comes out too."""
    for rule in rules:
        if any(re.match(pattern, name) for pattern in rule["patterns"]):
            kind = str(rule.get("partition_type", "column")).lower()
            if kind == "column" and not rule.get("gather_output"):
                return kind
            return "row" if kind == "row" else "whole"
    return "whole"


def _named(rules: Iterable[Mapping[str, Any]], block: str, layer: str) -> bool:
    """Whether a pattern fits a layer of a Llama."""
    return any(
        _fits(pattern, (f"model.layers.0.{block}.{layer}.weight",)) for rule in rules for pattern in rule["patterns"]
    )


def _is_plain(spec: object) -> bool:
    """Whether a spec is one that is judged here: patterns that are regular expressions, any model, no own shape."""
    if not isinstance(spec, Mapping) or spec.get("model_types") or spec.get("shape") or "partition_dim" in spec:
        return False
    patterns = spec.get("patterns")
    return isinstance(patterns, list) and all(isinstance(one, str) and _is_expression(one) for one in patterns)


def _is_expression(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _fits(pattern: str, names: Iterable[str]) -> bool:
    return any(re.match(pattern, name) for name in names)
