"""Activations that wait in the node's RAM: what is where in a simulated pass, and that TRL's own class moves it so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import simulations

pytestmark = pytest.mark.proof

HELPER = Path(__file__).resolve().parents[1] / "helpers" / "trl_offloading.py"
HIDDEN, VOCABULARY, LAYERS, TOKENS = 64, 4096, 8, 256
INPUT = 2 * TOKENS * HIDDEN  # bytes of what goes into a block
LLAMA = {
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 128,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}


def request(stage: int = 0, world: int = 1, **more: Any) -> dict[str, Any]:
    config: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}
    config |= {"zero_optimization": {"stage": stage}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
    asked = {"config": config, "model": LLAMA, "world_size": world, "seq_len": TOKENS, "checkpointing": True}
    return {**asked, "activation_offloading": True, **more}


def last(phases: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return [one for one in phases if one["phase"] == name][-1]


def test_inputs_of_blocks_are_in_ram_and_the_last_of_them_on_their_way() -> None:
    """A chunked loss keeps the gradient of the hidden states, and of the head, which wait there too."""
    found, plain = (
        simulations.simulate(request(chunked_loss=True, activation_offloading=way))["phases"] for way in (True, False)
    )
    forward, backward = last(found, "forward"), last(found, "backward")
    norm = 2 * INPUT + 4 * TOKENS + INPUT  # fp32 states, the root of the mean of their squares, their product
    ids = 8 * TOKENS  # which the embedding keeps

    assert forward["host"]["end_parts"]["activations"] == pytest.approx(
        LAYERS * INPUT + norm + INPUT + 2 * VOCABULARY * HIDDEN + ids, rel=1e-3
    )
    saved = last(plain, "forward")["gpu"]["end_bytes"] - forward["gpu"]["end_bytes"]
    assert saved == pytest.approx(LAYERS * INPUT, rel=0.01)
    assert "activations" not in backward["host"]["end_parts"]


def test_without_a_chunked_loss_ram_holds_the_fp32_logits_too() -> None:
    found = simulations.simulate(request())["phases"]

    assert last(found, "forward")["host"]["end_parts"]["logits and loss"] == pytest.approx(
        4 * TOKENS * VOCABULARY, rel=0.01
    )


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"chunked_loss": True, "stage": 2, "world": 2},
        {"chunked_loss": True, "stage": 3, "world": 2, "steps": 2},
        {"method": "lora", "reentrant": True},
        {"method": "qlora", "chunked_loss": True},
    ],
    ids=["stage 0", "stage 2", "stage 3", "lora, reentrant", "qlora"],
)
def test_trl_s_own_class_moves_the_same(more: dict[str, Any]) -> None:
    """Phase by phase and part by part, to the byte."""
    asked = request(**more)
    ran = subprocess.run(
        [sys.executable, HELPER], input=json.dumps(asked), capture_output=True, text=True, check=False, timeout=300
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    theirs, ours = json.loads(ran.stdout.splitlines()[-1]), simulations.simulate(asked)["phases"]

    for one, other in zip(theirs, ours, strict=True):
        for place in ("gpu", "host"):
            assert one[place]["peak_bytes"] == other[place]["peak_bytes"], (one["phase"], one["step"], place)
            assert one[place]["end_bytes"] == other[place]["end_bytes"], (one["phase"], one["step"], place)
