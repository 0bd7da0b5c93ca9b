"""How a model comes in, held against the real libraries: resident memory of real loads, and the engine's own init."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dsgen

pytestmark = pytest.mark.proof

MIB = 2**20
SLACK = 16 * MIB  # what a load makes beside the weights
CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
}
ASKED = {"hw": "a100-80g", "model": "1b", "gpus": 8, "seq_len": 512, "checkpointing": "none"}
LORA = {"method": "lora", "lora_rank": 64}
QLORA = {"method": "qlora", "lora_rank": 64}
# Loads what lies in a folder and says how much more of this process's memory is its own, in bytes.
LOAD = """
import importlib, json, sys, torch
from transformers import AutoConfig, AutoModelForCausalLM
folder, dtype = sys.argv[1:]
type(AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("{tiny}"))).__name__
def own():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
before = own()
model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
loaded = own() - before
print(json.dumps({{"own": loaded, "elements": sum(p.numel() for p in model.parameters())}}))
"""


def saved(folder: Path, kind: str, **sizes: Any) -> Path:
    """A checkpoint with random weights in bf16, and a folder beside it with a tiny model of the same class."""
    import torch
    import transformers

    common = {"num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2, "tie_word_embeddings": False}
    for name, asked in (("tiny", {"hidden_size": 64, "intermediate_size": 64, "vocab_size": 64}), ("model", sizes)):
        config = getattr(transformers, f"{kind}Config")(**common, **asked)
        model = getattr(transformers, f"{kind}ForCausalLM")(config).to(torch.bfloat16)
        model.save_pretrained(folder / name)
    return folder


def load(folder: Path, dtype: str) -> dict[str, int]:
    ran = subprocess.run(
        [sys.executable, "-c", LOAD.format(tiny=folder / "tiny"), str(folder / "model"), dtype],
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(ran.stdout.splitlines()[-1]))


@pytest.mark.parametrize(("dtype", "each"), [("bfloat16", 0), ("float32", 4), ("float16", 2)])
def test_from_pretrained_maps_what_has_the_dtype_asked_for(tmp_path: Path, dtype: str, each: int) -> None:
    """`mapped`, `fp32` and `copied`: 0, 4 and 2 bytes of each rank's own for a weight."""
    where = saved(tmp_path, "Llama", hidden_size=1024, intermediate_size=4096, vocab_size=16000)
    found = load(where, dtype)

    assert found["own"] == pytest.approx(each * found["elements"], abs=SLACK)


def test_the_experts_of_a_mixture_are_joined_in_own_memory(tmp_path: Path) -> None:
    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "vocab_size": 8000, "num_local_experts": 8}
    found = load(saved(tmp_path, "Mixtral", **sizes), "bfloat16")
    experts = 2 * 8 * 3 * 1024 * 4096

    assert found["own"] == pytest.approx(2 * experts, rel=0.1)  # what was freed in between is not all given back


@pytest.mark.parametrize("offload", ["none", "cpu"])
@pytest.mark.parametrize("said", [{"zero_init": False}, LORA | {"zero_init": False}, LORA | {"lora_fp32": False}])
def test_the_engine_takes_as_much(tmp_path: Path, offload: str, said: dict[str, Any]) -> None:
    """A model that no zero.Init made, and adapters that peft was told to leave in 16 bits, at stage 3."""
    real, ours = _both(
        tmp_path, said, {"stage": 3, "offload_param": {"device": offload}, "offload_optimizer": {"device": offload}}
    )

    assert ours["init"] == pytest.approx(real["init"], rel=0.02)
    assert max(ours.values()) == pytest.approx(max(real.values()), rel=0.02)


def _both(tmp_path: Path, said: dict[str, Any], zero: dict[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """Phase -> most bytes on a GPU, simulated and counted."""
    config = {**CONFIG, "zero_optimization": zero}
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    options = [word for name, value in (ASKED | said).items() for word in _option(name, value)]
    ran = subprocess.run(
        [sys.executable, "-m", "dsgen", "simulate", "--config", str(path), *options, "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    real = _phases(json.loads(ran.stdout)["phases"])
    ours = {}
    for phase in dsgen.memory({**ASKED, **said}, config=config).memory.phases:
        ours[phase.phase] = max(ours.get(phase.phase, 0), phase.gpu_bytes)
    return real, ours


@pytest.mark.parametrize("said", [{}, LORA])
def test_the_engine_takes_as_much_ram_in_init(said: dict[str, Any]) -> None:
    """Stage 3 makes the shares of what is trained one tensor there; nothing else of the model is in RAM then."""
    job = {**ASKED, "zero_stage": 3, "offload": "none", "micro_batch": 1, **said}
    real = {phase.phase: phase.host_bytes for phase in dsgen.simulate(dsgen.scenario(job)).estimate.phases}
    ours = {phase.phase: phase.host_bytes for phase in dsgen.memory(job, target="hf-trainer").memory.phases}

    assert ours["init"] == real["init"] > 0


@pytest.mark.parametrize("stage", [0, 2, 3])
@pytest.mark.parametrize("said", [{"double_quantization": False}, {"kbit_fp32": "never"}])
def test_a_base_in_4_bits_takes_as_much(tmp_path: Path, stage: int, said: dict[str, Any]) -> None:
    """Scales in fp32, and a program that leaves what is not in 4 bits in 16."""
    real, ours = _both(tmp_path, QLORA | said, {"stage": stage})

    for phase in ("load", "init", "forward", "backward", "step"):
        assert ours[phase] == pytest.approx(real[phase], rel=0.01), phase


def _option(name: str, value: Any) -> list[str]:
    word = name.replace("_", "-")
    return [f"--no-{word}"] if value is False else [f"--{word}", str(value)]


def _phases(phases: list[dict[str, Any]]) -> dict[str, int]:
    most: dict[str, int] = {}
    for one in phases:
        most[one["phase"]] = max(most.get(one["phase"], 0), one["gpu"]["peak_bytes"])
    return most
