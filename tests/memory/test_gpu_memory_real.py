"""The real side of the comparison with a GPU: up to the first CUDA call, and whole on a CPU that stands in for it."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import simulations

pytestmark = pytest.mark.proof

REPOSITORY = Path(__file__).resolve().parents[2]
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
# A card that reads nothing: every torch.cuda call of a run lies in the class that it stands in for.
STAND_IN = """
import json, os, sys
os.environ["DS_ACCELERATOR"] = "cpu"
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
import gpu_memory_run

class Cpu:
    device, backend = "cpu", "gloo"
    def open(self): return {"name": "cpu", "capability": [0, 0]}
    def begin(self): return None
    def end(self): return dict.fromkeys(["peak_allocated_bytes", "peak_reserved_bytes"], 0)
    def close(self): return {"outside_bytes": 0}

json.dump(gpu_memory_run.measure(json.load(sys.stdin), Cpu(), {}), answers)
answers.flush()
os._exit(0)
"""


def child(command: list[str], question: Any, **environment: str) -> Any:
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "benchmarks")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        # One thread: a tiny model's two threads wait for each other where other programs want the cores.
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment},
        timeout=300,
        check=True,
    )
    return json.loads(done.stdout)


def request(stage: int, **more: Any) -> dict[str, Any]:
    from dsgen.engine.simulate.requests import filled

    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": True},
    }
    return filled({"config": config, "model": MODEL, "world_size": 1, "seq_len": 32, "attention": "sdpa", **more})


@pytest.mark.parametrize(
    ("stage", "more"),
    [
        (1, {}),
        (3, {}),
        (2, {"method": "lora", "checkpointing": True}),
        (3, {"attention": "eager"}),
        (3, {"evaluation": 3}),
        (2, {"checkpoint": True}),
        (3, {"checkpoint": True, "method": "lora"}),
    ],
)
def test_a_run_is_cut_where_the_simulation_is_cut(stage, more):
    """Real steps on the CPU; each phase has its namesake in the simulation of the same request."""
    asked = request(stage, **more)

    found = child(["-c", STAND_IN], asked)
    said = simulations.simulate(asked)

    cuts = [[phase[key] for key in ("phase", "step", "micro_batch")] for phase in found["phases"]]
    assert cuts == [[phase[key] for key in ("phase", "step", "micro_batch")] for phase in said["phases"]]
    assert len(cuts) == 2 + 2 * (6 if "evaluation" in more else 5) + (4 if "checkpoint" in more else 0)
    assert found["engine"]["wrapper"] == said["engine"]["wrapper"]
    assert found["rss_bytes"] > 100 * 2**20


def test_without_a_card_everything_before_the_first_cuda_call_is_run():
    asked = {"check": [request(2), request(3, method="lora")]}

    found = child(["benchmarks/gpu_memory_run.py"], asked, CUDA_VISIBLE_DEVICES="")

    full, lora = found["built"]
    assert full == {"parameters": full["trained"], "trained": full["trained"], "batch": [2, 32]}
    assert 0 < lora["trained"] < full["trained"] < lora["parameters"]
    assert "CUDA" in found["first_call"]["message"] or "NVIDIA" in found["first_call"]["message"]
    assert found["first_call"]["site"].startswith("torch/cuda/__init__.py")


def test_a_model_that_cannot_be_built_is_told():
    asked = request(2)
    asked["model"] = {**MODEL, "model_type": "no-such-model"}

    found = child(["benchmarks/gpu_memory_run.py"], {"check": [asked]}, CUDA_VISIBLE_DEVICES="")

    assert "no-such-model" in found["built"][0]["error"]["message"]


def test_an_error_of_a_run_is_an_answer():
    found = child(["benchmarks/gpu_memory_run.py"], {"request": {**request(0), "attention": "flash"}})

    assert found.get("not_run") == "flash_attn is not installed" or "error" in found
    assert found["versions"]["deepspeed"]


def test_a_peak_outlives_a_reset_of_deepspeeds(monkeypatch):
    """`see_memory_usage` resets torch's peaks in the middle of initialize; the largest of the phase is still told."""
    import torch

    held = {"now": 0, "peak": 0}

    def hold(size: int) -> None:
        held.update(now=size, peak=max(held["peak"], size))

    def reset(*_: Any) -> None:
        held["peak"] = held["now"]

    properties = SimpleNamespace(name="a card", major=9, minor=0, multi_processor_count=132)
    made_up = {
        "init": lambda: None,
        "set_device": lambda _: None,
        "synchronize": lambda: None,
        "get_device_properties": lambda _: properties,
        "mem_get_info": lambda: (70, 100),
        "memory_reserved": lambda: 10,
        "memory_allocated": lambda: held["now"],
        "max_memory_allocated": lambda: held["peak"],
        "max_memory_reserved": lambda: 2 * held["peak"],
        "memory_stats": dict,
        "reset_peak_memory_stats": reset,
    }
    for name, function in made_up.items():
        monkeypatch.setattr(torch.cuda, name, function)
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: None)
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    card = importlib.import_module("gpu_memory_card").Card()

    opened = card.open()
    card.begin()
    hold(7)
    hold(3)
    torch.cuda.reset_peak_memory_stats(0)
    hold(5)
    first = card.end()
    card.begin()
    second = card.end()

    assert opened["context_bytes"] == 100 - 70 - 10
    assert (first["peak_allocated_bytes"], first["peak_reserved_bytes"], first["end_allocated_bytes"]) == (7, 14, 5)
    assert second["peak_allocated_bytes"] == 5
