"""A model that is run as a config.json: of a profile, of a file, or given as it is; hardware and network beside it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from dsgen import catalog
from dsgen.catalog.sheets import json_map
from dsgen.catalog.structure import structure
from dsgen.documents.yaml.reader import read_text
from dsgen.families.hf_config import to_hf_config
from dsgen.jobs.assembly import canonical
from dsgen.shapes.errors import mistake
from dsgen.shapes.layers import Layer, fold
from dsgen.shapes.profiles import Hardware, Model, Network

__all__ = ["hardware_of", "network_of", "read"]

# Sizes that every config.json holds as one number; transformers takes any, and what is wrong fails later on.
_SIZES = ("hidden_size", "n_embd", "num_hidden_layers", "n_layer", "vocab_size")

T = TypeVar("T")


def read(said: str | Path | Mapping[str, Any]) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    """A model's name, its config.json, and what a person should know of it.

    Args:
        said: A model profile's name or file, a config.json or its folder, or what stands in one.

    Raises:
        DsgenError: An unknown profile or a broken file.
    """
    if isinstance(said, Mapping):
        return str(said.get("model_type", "model")), *_language_part(dict(said), "the model")
    path = Path(said).expanduser()
    with contextlib.suppress(OSError, ValueError):  # no file can have that name: then it is one of a profile
        path = path / "config.json" if (path / "config.json").is_file() else path
    if path.suffix == ".json":
        name = path.resolve().parent.name if path.name == "config.json" else path.stem
        return name, *_language_part(json_map(read_text(path), str(path)), str(path))
    model = _one(Model, "model", (catalog.find("model", str(said)).layer,))
    return str(said), to_hf_config(attrs.asdict(model)), ()


def hardware_of(layers: tuple[Layer, ...]) -> Hardware:
    """The hardware that some layers say, the rest of a job left out.

    Raises:
        DsgenError: A fact is missing or wrong.
    """
    return _one(Hardware, "hardware", layers)


def network_of(layers: tuple[Layer, ...]) -> Network:
    """The network that some layers say, the rest of a job left out.

    Raises:
        DsgenError: A fact is missing or wrong.
    """
    return _one(Network, "network", layers)


def _one(shape: type[T], section: str, layers: tuple[Layer, ...]) -> T:
    folded = fold(canonical(layers))
    return structure(shape, section, folded.tree, folded.provenance)


def _language_part(config: dict[str, Any], where: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What is trained as a causal language model: of a multimodal model its text part."""
    part = config.get("text_config")
    for name in _SIZES:
        _check_size(name, part if isinstance(part, dict) and name in part else config, where)
    if isinstance(part, dict) and isinstance(part.get("model_type"), str):
        kept = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
        return {**kept, **part}, (f"{where} is multimodal: its language model alone is taken",)
    if not isinstance(config.get("model_type"), str):
        raise mistake(
            "no model_type",
            must="a model's config.json has one",
            where=where,
            todo="Give the config.json that lies beside the model's weights.",
            code="missing",
        )
    plain: dict[str, Any] = json.loads(json.dumps(config))
    return plain, ()


def _check_size(name: str, config: Mapping[str, Any], where: str) -> None:
    size = config.get(name)
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise mistake(f"{name} is {size!r}", must="it must be a whole number of at least 1", where=where)
