"""The tiny sibling of a model keeps every choice of it, and nothing of its size."""

from __future__ import annotations

import attrs
import pytest

from dsgen import catalog
from dsgen.catalog.structure import structure
from dsgen.families.hf_config import model_from_hf
from dsgen.jobs.assembly import canonical
from dsgen.proving.sizeless import sibling
from dsgen.shapes.layers import fold
from dsgen.shapes.profiles import Model

CHOICES = (
    "architecture",
    "tied_embeddings",
    "gated_ffn",
    "attention_bias",
    "qk_norm",
    "mlp_bias",
    "post_norm",
    "dropout",
)
OPTIONAL = (
    "experts",
    "shared_experts",
    "sliding_window",
    "q_lora_rank",
    "kv_lora_rank",
    "embedding_size",
    "dense_layers",
)


def model(name: str) -> Model:
    folded = fold(canonical((catalog.find("model", name).layer,)))
    return structure(Model, "model", folded.tree, folded.provenance)


@pytest.mark.parametrize("name", catalog.names("model"))
def test_a_sibling_makes_the_same_choices(name: str) -> None:
    true = model(name)
    tiny = model_from_hf(sibling(true), "the sibling")
    left_out = {field.name: field.default for field in attrs.fields(Model)}
    made = {choice: tiny.get(choice, left_out[choice]) for choice in (*CHOICES, *OPTIONAL)}

    assert [choice for choice in CHOICES if made[choice] != getattr(true, choice)] == []
    assert [part for part in OPTIONAL if bool(made[part]) != bool(getattr(true, part))] == []
    heads = (tiny["kv_heads"] == 1, tiny["kv_heads"] == tiny["attention_heads"])
    assert heads == (true.kv_heads == 1, true.kv_heads == true.attention_heads)


def test_models_that_differ_in_size_alone_have_one_sibling() -> None:
    assert sibling(model("llama-3.1-8b")) == sibling(model("llama-3.1-70b"))
    assert sibling(model("llama-3.1-8b")) != sibling(model("llama-3.2-1b"))  # its head is tied
    assert sibling(model("llama-3.1-8b")) != sibling(model("llama-2-7b"))  # every query head has its own key head
