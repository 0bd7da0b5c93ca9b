"""The child of the comparison with a GPU, whole on a CPU: a real engine steps, kernels run, and errors are answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsgen.engine.simulate.requests import filled

pytestmark = pytest.mark.proof

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "benchmarks"))
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
KERNELS = [
    {"kind": "product", "m": 32, "n": 64, "k": 16, "dtype": "fp32"},
    {"kind": "attention", "phase": "forward", "batch": 1, "heads": 4, "kv_heads": 2, "length": 16, "head_size": 16,
     "causal": True},
    {"kind": "attention", "phase": "backward", "batch": 1, "heads": 4, "kv_heads": 4, "length": 16, "head_size": 16,
     "causal": False},
    *({"kind": "memory", "sort": sort, "elements": 8192} for sort in ("stream", "reduction", "gather", "adam")),
    {"kind": "host", "phase": "forward", "operators": 10},
    {"kind": "host", "phase": "views", "operators": 10},
    {"kind": "copy", "direction": "to_host", "bytes": 4096},
    {"kind": "product", "m": 32, "n": 64, "k": 16, "dtype": "no such dtype"},
]  # fmt: skip


def child(question: dict[str, Any]) -> Any:
    """What the child answers."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "benchmarks/gpu_speed_run.py"],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def request(**changed: Any) -> dict[str, Any]:
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 1},
    }
    asked = {"config": config, "model": MODEL, "world_size": 1, "gpus_per_node": 1, "seq_len": 16, "dtype": "bfloat16",
             "attention": "sdpa", "checkpointing": False}  # fmt: skip
    return filled({**asked, **changed})


def test_real_steps_are_timed() -> None:
    told = child({"device": "cpu", "request": request(), "warmup": 1, "steps": 3})

    assert len(told["step_seconds"]) == 3
    assert min(told["step_seconds"]) <= told["median_seconds"] <= max(told["step_seconds"])
    assert told["median_seconds"] > 0
    assert told["peak"] == {}  # a CPU has no allocator to ask
    assert 5 < told["loss"] < 8  # of 512 tokens that nobody has learned: ln 512 is 6.2
    assert told["skipped_steps"] == 0


def test_adapters_at_stage_3_are_timed_too() -> None:
    asked = request(method="lora", checkpointing=True)
    asked["config"]["zero_optimization"] = {"stage": 3}

    told = child({"device": "cpu", "request": asked, "warmup": 0, "steps": 1})

    assert told["median_seconds"] > 0


def test_every_kind_of_kernel_is_timed_and_a_wrong_one_says_why() -> None:
    told = child({"device": "cpu", "kernels": KERNELS, "seconds": 0.001})["kernels"]

    assert all(one["seconds"] > 0 for one in told[:-1]), told
    assert told[-1]["error"]["type"] == "KeyError"
    assert told[-1]["error"]["out_of_memory"] is False


def test_facts_of_the_machine_are_told() -> None:
    told = child({"device": "cpu"})

    assert told["card"]["name"] == "cpu"
    assert told["card"]["cores"] >= 1
    assert told["versions"]["torch"]


def test_what_ends_a_run_is_an_answer_with_its_phase() -> None:
    told = child({"device": "cpu", "request": request(model={**MODEL, "model_type": "no-model"}), "warmup": 0,
                  "steps": 1})  # fmt: skip

    assert told["error"]["phase"] == "load"
    assert told["error"]["out_of_memory"] is False
