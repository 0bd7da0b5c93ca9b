"""A checkpoint that the simulated engine saves, and another engine loads, beside what dsgen counts of both."""

from __future__ import annotations

import json
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
CASES = [(0, "none"), (1, "none"), (2, "none"), (2, "cpu"), (3, "none"), (3, "cpu")]


def simulated(stage: int, offload: str, bucket: int) -> dict[str, dict[str, Any]]:
    zero: dict[str, Any] = {"stage": stage, "reduce_bucket_size": bucket}
    if offload == "cpu":
        zero["offload_optimizer"] = {"device": "cpu"}
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_optimization": zero,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    }
    asked = {"config": config, "model": MODEL, "world_size": WORLD, "seq_len": 64, "checkpoint": True}
    told = simulate(asked)
    assert "error" not in told, told["error"]
    assert [phase["phase"] for phase in told["phases"][-4:]] == ["save", "load", "init", "resume"]
    return {phase["phase"]: phase for phase in told["phases"]} | {"files": told["files"]}


@pytest.mark.proof
@pytest.mark.parametrize(("stage", "offload"), CASES)
def test_save_and_resume_take_what_is_counted(tmp_path: Path, stage: int, offload: str) -> None:
    bucket = 20_000_000
    found = simulated(stage, offload, bucket)
    dsgen_model = tmp_path / "config.json"
    dsgen_model.write_text(json.dumps(MODEL))
    said: dict[str, Any] = {"zero_stage": stage, "offload": offload, "tp": 1, "micro_batch": 1, "seq_len": 64}
    said |= {"accumulation": 1, "checkpointing": "none", "precision": "bf16"}
    job = dsgen.job(
        dsgen.profile("a100-80g")
        | dsgen.profile(str(dsgen_model))
        | {"training": said, "cluster": {"gpus": WORLD}}
        | {"deepspeed": {"zero_optimization": {"reduce_bucket_size": bucket}}}
    )
    footprint = dsgen.memory(job)
    job, strategy = footprint.question.job, footprint.question.strategy
    save, resume = saving(job, strategy), resuming(job, strategy)

    assert (strategy.stage, strategy.offload_optimizer, job.world) == (stage, offload, WORLD)
    gathered = save.gpu.get("gathered parameters", 0)  # for the Trainer's weights in 16 bits, which no engine saves
    assert found["save"]["gpu"]["peak_bytes"] == pytest.approx(save.gpu_bytes - gathered, abs=SMALL)
    assert found["resume"]["gpu"]["peak_bytes"] == pytest.approx(resume.gpu_bytes, abs=SMALL)
    assert WORLD * found["resume"]["host"]["peak_bytes"] == pytest.approx(resume.host_bytes, abs=WORLD * SMALL)
    assert WORLD * found["save"]["host"]["peak_bytes"] <= save.host_bytes + WORLD * SMALL
    # One rank's files: of all ranks they are the checkpoint, with the weights once.
    weights = footprint.written["weights"] // 2
    states = sum(size for name, size in footprint.written.items() if name != "weights")
    mine = states // (WORLD if stage else 1) + (weights if stage < 3 else 0)
    assert sum(found["files"].values()) == pytest.approx(mine, abs=SMALL)


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
