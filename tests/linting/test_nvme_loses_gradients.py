"""The rule on gradients that a drive does not read back: when it speaks, what it says, and that a render says it."""

from __future__ import annotations

from typing import Any

import pytest

import dsgen
from dsgen.linting.facts import facts
from dsgen.linting.linter import lint_config
from dsgen.shapes.findings import Finding, Severity
from dsgen.shapes.profiles import Training

RULE = "nvme-loses-gradients"
NVME = {"device": "nvme", "nvme_path": "/local_nvme"}
ADAM = {"type": "AdamW", "params": {"lr": 1e-5}}


def told(config: dict[str, Any] | None = None, *, zero: dict[str, Any] | None = None, **known: Any) -> list[Finding]:
    """What the rule says of an optimizer on NVMe at stage 3, qwen3-8b on 8 ranks."""
    whole = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "optimizer": ADAM,
        "zero_optimization": {"stage": 3, "offload_optimizer": NVME, **(zero or {})},
        **(config or {}),
    }
    said = facts(**{"model": "qwen3-8b", "world_size": 8, **known})
    return [one for one in lint_config(whole, facts=said) if one.rule == RULE]


def test_it_says_what_is_lost_where_and_what_to_do() -> None:
    (one,) = told()

    assert one.severity is Severity.WARNING
    assert one.path == "zero_optimization.offload_optimizer.device"
    assert "on 8 ranks the gradients of 189 of 399 tensors (63.6% of the parameters) are lost" in one.message
    assert "Linux 6.0" in one.message
    assert "/sys/block/nvme0n1/queue/dma_alignment` says 511" in one.message
    assert one.fix is not None
    assert not one.fix.safe


@pytest.mark.parametrize(
    "known",
    [{"model": None}, {"world_size": None}, {"world_size": 2}, {"model": "llama-3-8b"},
     {"training": Training(method="lora")}],
    ids=str,
)  # fmt: skip
def test_it_is_silent_where_nothing_is_lost_or_nobody_knows(known: dict[str, Any]) -> None:
    assert told(**known) == []


@pytest.mark.parametrize(
    "zero",
    [{"offload_optimizer": {"device": "cpu"}}, {"stage": 2}, {"sub_group_size": 1}, {"mics_shard_size": 4}],
    ids=str,
)
def test_it_is_silent_where_gradients_are_not_swapped_or_begin_a_sub_group(zero: dict[str, Any]) -> None:
    assert told(zero=zero) == []


def test_it_is_silent_where_the_program_or_muon_makes_the_groups() -> None:
    assert told({"optimizer": {"type": "Muon", "params": {"lr": 1e-3}}}) == []
    assert told({"optimizer": None}) == []


def test_the_ranks_of_a_node_count_where_the_hardware_is_named() -> None:
    assert "on 8 ranks" in told(world_size=None, hardware="h100")[0].message


def test_a_larger_block_of_the_drive_leaves_gradients_in_memory() -> None:
    assert told({"aio": {"block_size": 1 << 40}}) == []


def test_a_render_says_it_too() -> None:
    layers = dsgen.profile("h100") | dsgen.profile("qwen3-8b") | {"training": {"offload": "nvme"}}

    assert any("DSG356" in warning for warning in dsgen.render(layers).warnings)
