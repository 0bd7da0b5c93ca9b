"""Simulations of the real engine: parts that add up, states of the ZeRO paper, collectives, and words about errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.proof

REPOSITORY = Path(__file__).resolve().parent.parent
MODEL = {
    "model_type": "llama",
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
ELEMENTS = 2 * 512 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64


def simulate(world: int, zero: dict[str, Any], **more: Any) -> dict[str, Any]:
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero}
    config["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-3}}
    config.update(more.pop("config", {}))
    request = {"config": config, "model": MODEL, "world_size": world, "seq_len": 32, **more}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "dsgen.engine.simulate"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=300,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("stage", "weights", "master"),
    [(0, 2, 4), (1, 2, 4 / 64), (2, 2, 4 / 64), (3, 2 / 64, 4 / 64)],
)
def test_states_are_those_of_the_zero_paper(stage, weights, master):
    """Table 1 of the ZeRO paper (arXiv 1910.02054) at a data-parallel degree of 64; DeepSpeed pads to whole shares."""
    found = simulate(64, {"stage": stage})

    end = found["phases"][-1]["gpu"]["end_parts"]
    assert found["engine"]["parameters"] == ELEMENTS
    assert end["weights"] == pytest.approx(weights * ELEMENTS, rel=0.01)
    assert end["fp32 master weights"] == pytest.approx(master * ELEMENTS, rel=0.01)
    assert end["optimizer states"] == 2 * end["fp32 master weights"]


def test_parts_add_up_in_every_phase_and_sample():
    found = simulate(8, {"stage": 3, "offload_optimizer": {"device": "cpu"}}, checkpointing=True)

    for phase in found["phases"]:
        for place in ("gpu", "host"):
            for moment in ("peak", "end"):
                assert sum(phase[place][f"{moment}_parts"].values()) == phase[place][f"{moment}_bytes"]
    for place in ("gpu", "host"):
        top = max(sum(sample["parts"].values()) for sample in found["timeline"][place])
        assert top == found["peak"][place]["bytes"] == sum(found["peak"][place]["parts"].values())
    assert found["peak"]["gpu"]["allocator"]["allocated_peak_bytes"] >= found["peak"]["gpu"]["bytes"]


def test_stage_1_reduces_every_gradient_and_gathers_every_weight_once_a_step():
    found = simulate(8, {"stage": 1})

    second = [one for one in found["collectives"] if one["step"] == 2 and one["ranks"] == 8 and one["bytes"] > 64]
    moved = {(one["phase"], one["kind"]): one["bytes"] * one["count"] for one in second}
    assert moved["step", "all-gather"] >= 2 * ELEMENTS
    assert moved["backward", "all-reduce"] == pytest.approx(2 * ELEMENTS, rel=0.01)


def test_memory_per_rank_does_not_depend_on_the_rank():
    first, last = (simulate(4, {"stage": 3}, rank=rank)["phases"] for rank in (0, 3))

    assert [one["gpu"]["peak_bytes"] for one in first] == [one["gpu"]["peak_bytes"] for one in last]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"config": {"train_batch_size": 7}}, "train_batch_size is not equal"),
        ({"config": {"optimizer": {"type": "Lamb", "params": {}}}}, "no stand-in for the operator FusedLambBuilder"),
        ({"seq_len": 0}, "seq_len is 0"),
    ],
)
def test_an_error_is_told_in_the_engines_words(more, words):
    found = simulate(4, {"stage": 0}, **more)

    assert words in found["error"]["message"]
    assert found["versions"]["deepspeed"]
