"""Layers that AutoTP splits without their partners: as a tiny Llama on two ranks of DeepSpeed 0.19.8 took them."""

from __future__ import annotations

from typing import Any

import pytest

from dsgen.linting.facts import facts
from dsgen.linting.linter import lint_config
from dsgen.shapes.findings import Severity

LAYERS = [
    *(f"model.layers.0.self_attn.{name}_proj.weight" for name in "qkvo"),
    *(f"model.layers.0.mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
]
LLAMA = ("model.embed_tokens.weight", *LAYERS, "lm_head.weight")
PHI = ("model.layers.0.self_attn.qkv_proj.weight", "model.layers.0.self_attn.o_proj.weight")


def column(pattern: str, **keys: Any) -> dict[str, Any]:
    return {"patterns": [f".*{pattern}"], "partition_type": "column", **keys}


def row(pattern: str) -> dict[str, Any]:
    return {"patterns": [f".*{pattern}"], "partition_type": "ROW"}


STOPS: dict[str, list[dict[str, Any]]] = {
    "o_proj": [row("o_proj.weight$")],
    "down_proj": [row("down_proj.weight$")],
    "q_proj": [column("q_proj.weight$")],
    "k and v": [column("[kv]_proj")],
    "q, k and v": [column("[qkv]_proj")],
    "q and o": [column("q_proj"), row("o_proj")],
    "q, k and v by row": [row("[qkv]_proj")],
    "up": [column("up_proj")],
    "up and gate": [column("(up|gate)_proj")],
    "the embedding": [column("embed_tokens")],
    "the head": [column("lm_head")],
    "all by column": [column("_proj")],
    "a partner that is skipped": [
        {**column("up_proj"), "partition_type": "skip"},
        column("(up|gate)_proj"),
        row("down_proj"),
    ],
}
RUNS: dict[str, list[dict[str, Any]]] = {
    "attention": [column("[qkv]_proj"), row("o_proj")],
    "feed-forward": [column("(up|gate)_proj"), row("down_proj")],
    "up, gathered": [column("up_proj", gather_output=True)],
    "q, gathered": [column("q_proj", gather_output=True)],
    "the head by row": [row("lm_head")],
    "the head, gathered": [column("lm_head", gather_output=True)],
}


def said(specs: list[dict[str, Any]], parameters: tuple[str, ...] | None, **keys: Any) -> set[Severity]:
    parallel = {"autotp_size": 2, "partition_config": {"use_default_specs": False, "layer_specs": specs}, **keys}
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "tensor_parallel": parallel,
    }
    findings = lint_config(config, facts=facts(parameters=parameters, world_size=2))
    return {item.severity for item in findings if item.rule == "tensor-parallel-without-partner"}


@pytest.mark.parametrize("name", STOPS)
def test_what_is_torn_stops(name: str) -> None:
    """An error of a model whose layers are known, a warning where they are guessed."""
    assert said(STOPS[name], LLAMA) == {Severity.ERROR}
    assert said(STOPS[name], None) == {Severity.WARNING}
    assert said(STOPS[name], LLAMA, autotp_size=1) == set()


@pytest.mark.parametrize("name", RUNS)
def test_what_is_whole_runs(name: str) -> None:
    assert said(RUNS[name], LLAMA) == said(RUNS[name], None) == set()


def test_a_feed_forward_without_a_gate_is_whole() -> None:
    assert said([column("up_proj"), row("down_proj")], None) == set()
    assert said([column("up_proj"), row("down_proj")], LLAMA) == {Severity.ERROR}


def test_other_architectures_are_not_judged_as_a_llama() -> None:
    fused = [column("qkv_proj.weight$"), row("o_proj.weight$")]
    assert said(fused, PHI) == said(fused, None) == set()
    assert said([row("o_proj")], PHI) == set()


def test_a_preset_brings_the_partners() -> None:
    parallel = {"preset_model": "llama", "partition_config": {"layer_specs": [row("o_proj")]}}
    assert said([], LLAMA, **parallel) == set()


def test_what_cannot_be_read_is_left_to_other_rules() -> None:
    for spec in ("x", {"patterns": ["*"]}, {"patterns": 1}, {**row("o_proj"), "model_types": ["llama"]}):
        assert said([spec], LLAMA) == set()  # type: ignore[list-item]
