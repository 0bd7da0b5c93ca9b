"""The model's FLOPs: the laws that everyone knows, and what must change nothing."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

import dsgen
from dsgen.cost.model_flops import model_flops, utilization
from dsgen.families.parameters import parameter_count

BASE = {"hw": "a100-80g", "gpus": 8, "micro_batch": 1, "accumulation": 1}


def planned(**more: Any) -> dsgen.Plan:
    return dsgen.plan({**BASE, **more})


def test_full_training_is_six_per_parameter_and_token_and_attention() -> None:
    plan = planned(model="llama-2-7b", seq_len=4096)
    model = plan.job.model
    per_token = model_flops(plan.job, plan.chosen.strategy) / 4096
    products = 6 * (parameter_count(model) - model.vocab_size * model.hidden_size)  # an embedding is looked up
    attention = 6 * model.layers * model.hidden_size * 4096  # causal: half of 12 x layers x width x tokens

    assert per_token == pytest.approx(products + attention, rel=0.002)


def test_adapters_leave_the_gradients_of_frozen_weights_away() -> None:
    full, lora = planned(model="llama-2-7b", seq_len=512), planned(model="llama-2-7b", seq_len=512, method="lora")

    ratio = model_flops(lora.job, lora.chosen.strategy) / model_flops(full.job, full.chosen.strategy)

    assert 4 / 6 < ratio < 4.3 / 6


@pytest.mark.parametrize("change", [{"checkpointing": True}, {"checkpointing": False}, {"stage": 3}])
def test_what_is_recomputed_or_sharded_counts_once(change: dict[str, Any]) -> None:
    plan = planned(model="1b", seq_len=1024)
    other = attrs.evolve(plan.chosen.strategy, **change)

    assert model_flops(plan.job, other) == model_flops(plan.job, plan.chosen.strategy)


def test_a_window_sees_less() -> None:
    plan = planned(model="mistral-7b", seq_len=4096)
    narrow = attrs.evolve(plan.job, model=attrs.evolve(plan.job.model, sliding_window=512))

    assert model_flops(narrow, plan.chosen.strategy) < model_flops(plan.job, plan.chosen.strategy)


def test_utilization_is_of_the_dense_peak() -> None:
    plan = planned(model="1b", seq_len=1024)
    flops = model_flops(plan.job, plan.chosen.strategy)

    assert utilization(plan.job, plan.chosen.strategy, flops / 312e12) == pytest.approx(1)
