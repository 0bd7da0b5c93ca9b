"""A family stands in its one file, and is listed."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import dsgen.families
from dsgen.families import FAMILIES, Family, family_of
from dsgen.families.tape.forwards import Forward, Stacks
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.profiles import Model

FILES = [file.name for file in pkgutil.iter_modules(dsgen.families.__path__) if not file.ispkg]


def families_of(file: str) -> list[Family]:
    """Those that a file holds, without those that it takes from another's."""
    found = vars(importlib.import_module(f"dsgen.families.{file}"))
    return [found[name] for name in found.get("__all__", ()) if isinstance(found[name], Family)]


def test_every_family_of_every_file_is_listed_once() -> None:
    held = [family for file in FILES for family in families_of(file)]

    assert sorted(family.model_type for family in held) == list(FAMILIES)
    assert {id(family) for family in held} == {id(family) for family in FAMILIES.values()}


def test_a_model_type_is_found_by_the_name_of_its_file() -> None:
    """Qwen3-MoE in qwen3, OLMoE in olmo; mT5 alone stands in the file of another name."""
    elsewhere = {
        family.model_type for file in FILES for family in families_of(file) if not family.model_type.startswith(file)
    }

    assert elsewhere == {"mt5"}


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_what_a_family_says_in_several_places_goes_together(family: Family) -> None:
    layout, order = family.layout, family.order

    assert isinstance(family.forward, Stacks if family.encodes else Forward)
    assert bool(layout.sparse) == family.says("experts") == bool(order.sparse)
    assert bool(layout.encoder) == family.says("encoder_layers") == bool(order.encoder)
    assert not family.leaf or layout.sparse
    assert set(family.parts.values()) <= {row.name for row in layout.sparse}
    assert {key.fact for key in family.keys} <= set(Model.__annotations__)


def test_an_unknown_architecture_names_the_nearest() -> None:
    known = {
        "layers": 1,
        **dict.fromkeys(("hidden_size", "attention_heads", "kv_heads", "head_size", "ffn_size", "vocab_size"), 8),
        "max_positions": 8,
        "tied_embeddings": False,
        "gated_ffn": True,
    }
    with pytest.raises(DsgenError, match=r"'lama'; .*(?s:.)*did you mean llama"):
        family_of(Model(architecture="lama", **known))
