"""A checkpoint that the simulated engine saves, and another engine loads, beside what dsgen counts of both."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.simulations import simulate

import dsgen
from dsgen.memory.checkpoints import resuming, saving

WIDTH, VOCABULARY, BLOCKS, WORLD = 512, 32_000, 4, 2
MODEL: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 2 * WIDTH,
    "num_hidden_layers": BLOCKS,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}
SMALL = 64 * 1024  # bytes: norms, counters and flags, which are not counted
CASES = [(stage, "none", "full") for stage in (0, 1, 2, 3)] + [(2, "cpu", "full"), (3, "cpu", "full")]
CASES += [(stage, "none", method) for stage in (1, 2, 3) for method in ("lora", "qlora")]
SCALES = BLOCKS * 2 * 5 * WIDTH * WIDTH // 64  # of a base in 4 bits: four matrices, and three of twice the size
GATHERS = "stage3_gather_16bit_weights_on_model_save"


def simulated(stage: int, offload: str, method: str, bucket: int, gathers: bool = True) -> dict[str, dict[str, Any]]:
    zero: dict[str, Any] = {"stage": stage, "reduce_bucket_size": bucket, GATHERS: gathers}
    if offload == "cpu":
        zero["offload_optimizer"] = {"device": "cpu"}
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_optimization": zero,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    }
    asked = {"config": config, "model": MODEL, "world_size": WORLD, "seq_len": 64, "checkpoint": True}
    asked["method"] = method
    told = simulate(asked)
    assert "error" not in told, told["error"]
    assert [phase["phase"] for phase in told["phases"][-4:]] == ["save", "load", "init", "resume"]
    return {phase["phase"]: phase for phase in told["phases"]} | {"files": told["files"]}


@pytest.mark.proof
@pytest.mark.parametrize(("stage", "offload", "method"), CASES)
def test_save_and_resume_take_what_is_counted(tmp_path: Path, stage: int, offload: str, method: str) -> None:
    """With the weights in 16 bits, as the Trainer saves them: copies, or at stage 3 those that rank 0 gathers."""
    bucket = 20_000_000
    found = simulated(stage, offload, method, bucket)
    dsgen_model = tmp_path / "config.json"
    dsgen_model.write_text(json.dumps(MODEL))
    said: dict[str, Any] = {"zero_stage": stage, "offload": offload, "tp": 1, "micro_batch": 1, "seq_len": 64}
    said |= {"accumulation": 1, "checkpointing": "none", "precision": "bf16", "method": method}
    zero = {"reduce_bucket_size": bucket} | ({"stage3_param_persistence_threshold": 100_000} if stage == 3 else {})
    job = dsgen.job(
        dsgen.profile("a100-80g")
        | dsgen.profile(str(dsgen_model))
        | {"training": said, "cluster": {"gpus": WORLD}}
        | {"deepspeed": {"zero_optimization": zero}}
    )
    footprint = dsgen.memory(job)
    job, strategy = footprint.question.job, footprint.question.strategy
    save, resume = saving(job, strategy), resuming(job, strategy)

    assert (strategy.stage, strategy.offload_optimizer, job.world) == (stage, offload, WORLD)
    assert found["save"]["gpu"]["peak_bytes"] == pytest.approx(save.gpu_bytes, abs=SMALL)
    assert found["resume"]["gpu"]["peak_bytes"] == pytest.approx(resume.gpu_bytes, abs=SMALL)
    # A simulated state dict has no scales of a base in 4 bits; every rank copies or reads them.
    scales = WORLD * (SCALES + 4 * (SCALES // 256)) if method == "qlora" and stage < 3 else 0
    assert WORLD * found["resume"]["host"]["peak_bytes"] == pytest.approx(resume.host_bytes - scales, abs=WORLD * SMALL)
    gathered = found["files"]["model"] if stage == 3 else 0  # rank 0 alone has them, and this is rank 0
    expected = save.host_bytes - scales + (WORLD - 1) * gathered
    assert WORLD * found["save"]["host"]["peak_bytes"] == pytest.approx(expected, abs=WORLD * SMALL)
    # One rank's files: of all ranks they are the checkpoint, with the weights once; and what the Trainer writes.
    written = dict(footprint.written)
    weights, scaled = written.pop("weights"), written.pop("scales of the base", 0)
    assert bool(scaled) == (method == "qlora")
    embedding = VOCABULARY * WIDTH if stage < 3 and method != "full" else 0  # tied: left out under one of its names
    once = (weights - 2 * embedding) // (2 if stage < 3 else 1)
    mine = sum(written.values()) // (WORLD if stage else 1) + (once + 2 * embedding if stage < 3 else 0)
    files = dict(found["files"])
    model = files.pop("model")
    assert sum(files.values()) == pytest.approx(mine, abs=SMALL)
    if stage == 3:
        assert model == pytest.approx(once, abs=SMALL)


@pytest.mark.proof
def test_weights_are_gathered_where_the_config_says_so() -> None:
    """DeepSpeed refuses otherwise, and the Trainer saves a checkpoint alone; of adapters it does not ask."""
    alone = simulated(3, "none", "full", 20_000_000, gathers=False)
    gathered = simulated(3, "none", "full", 20_000_000)

    assert "model" not in alone["files"]
    assert {name: size for name, size in gathered["files"].items() if name != "model"} == alone["files"]
    largest = 2 * VOCABULARY * WIDTH
    assert gathered["save"]["gpu"]["peak_bytes"] - alone["save"]["gpu"]["peak_bytes"] == pytest.approx(
        largest, abs=SMALL
    )
    assert "model" in simulated(3, "none", "lora", 20_000_000, gathers=False)["files"]


@pytest.mark.proof
def test_what_is_reserved_is_that_of_the_steps() -> None:
    """A save and a resume come once; what the allocator is asked for over and over is a step."""
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 1},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    }
    asked = {"config": config, "model": MODEL, "world_size": WORLD, "seq_len": 64}
    with_one, without = simulate({**asked, "checkpoint": True}), simulate(asked)

    assert with_one["peak"]["gpu"]["allocator"] == without["peak"]["gpu"]["allocator"]
    assert with_one["phases"][: len(without["phases"])] == without["phases"]
    assert "files" not in without


@pytest.mark.proof
def test_python_s_garbage_changes_nothing() -> None:
    """When Python looks for it hangs on how many objects there are; here it would with every one."""
    looking = "import gc; gc.set_threshold(1, 1, 1); from dsgen.engine.simulate.__main__ import main; main()"
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    }
    asked = {"config": config, "model": MODEL, "world_size": WORLD, "seq_len": 64, "method": "lora", "checkpoint": True}
    done = subprocess.run(
        [sys.executable, "-c", looking], input=json.dumps(asked), stdout=subprocess.PIPE, text=True, check=True
    )

    assert json.loads(done.stdout)["phases"] == simulate(asked)["phases"]
