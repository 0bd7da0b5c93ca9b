"""Reentrant checkpointing: what bitsandbytes keeps of gathered weights, when a block runs again, and who asks for it.

The peaks are those of the simulated engine (DeepSpeed 0.19.8 and 0.18.9, torch 2.13): blocks of a 7B whole in width.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

import dsgen
from dsgen.asking.memory_questions import ask_config, given
from dsgen.asking.training_arguments import read_arguments
from dsgen.cost.model_work import work
from dsgen.jobs.releases import recomputed, reenters, why_reenters
from dsgen.memory import estimate
from dsgen.memory.activations import AGAIN, BACKWARD
from dsgen.memory.events import Step, events
from dsgen.memory.gathered import gathered

LIMITS = (100_000, 10_000_000, 100_000_000, 100_000_000)  # persistence, prefetch, most live, most until reuse
GIB = 2**30
CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 2,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "zero_optimization": {
        "stage": 3,
        "stage3_max_live_parameters": 100_000_000,
        "stage3_max_reuse_distance": 100_000_000,
        "stage3_prefetch_bucket_size": 10_000_000,
    },
}
# Method, reentrant, release -> GiB of the highest tensors in forward and in backward, as simulated.
SIMULATED = {
    ("qlora", False, "0.19.8"): (2.043, 2.212),
    ("qlora", True, "0.19.8"): (1.595, 1.650),
    ("qlora", False, "0.18.9"): (1.917, 2.188),  # said or not, it is reentrant there
    ("lora", True, "0.19.8"): (1.799, 2.136),
    ("lora", True, "0.18.9"): (2.158, 2.352),
    ("full", False, "0.19.8"): (4.949, 5.335),
    ("full", True, "0.19.8"): (4.949, 5.168),
}


def step(method: str, **more: Any) -> Step:
    """A few blocks of a 7B whose blocks run again."""
    model = attrs.evolve(dsgen.job({"hw": "h100-80g", "model": "7b"}).model, layers=6)
    return Step(model, method, 16, ("all-linear",), 1, checkpointing=True, **more)


@pytest.mark.parametrize(("method", "reentrant", "release"), list(SIMULATED))
def test_forward_and_backward_hold_what_is_simulated(method: str, reentrant: bool, release: str) -> None:
    job = dsgen.job({"hw": "h100-80g", "model": "7b", "gpus": 8}, release.rpartition(".")[0])
    training = attrs.evolve(
        job.training, method=method, reentrant=reentrant, seq_len=512, chunked_loss=True, checkpointing="full",
        lora_fp32=release > "0.19",
    )  # fmt: skip
    model = attrs.evolve(job.model, layers=6)
    question = ask_config(attrs.evolve(job, model=model, training=training, pins=()), given(CONFIG))
    told = estimate(question.job, attrs.evolve(question.strategy, checkpointing=True))
    held = [max(one.gpu_bytes for one in told.phases if one.phase == name) / GIB for name in ("forward", "backward")]
    assert tuple(held) == pytest.approx(SIMULATED[method, reentrant, release], rel=1e-3)


def test_bitsandbytes_keeps_gathered_weights_from_forward_on_only_in_a_graph() -> None:
    plain, reentrant = (gathered(step("qlora", reentrant=way), LIMITS) for way in (False, True))
    older = gathered(step("qlora", reentrant=True, returns=True), LIMITS)
    assert plain.packed > 5 * 50_000_000  # about all blocks' packed weights
    assert (reentrant.packed, older.packed) == (0, 0)


@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
def test_all_of_a_block_runs_again_before_anything_of_it_has_its_backward(method: str) -> None:
    ways = [event.way for event in events(step(method, reentrant=True)) if event.block == 3 and event.module.tensors]
    again = ways.count(AGAIN)
    assert ways[-2 * again :].count(BACKWARD) == again
    assert AGAIN not in ways[-again:]
    partly = [event for event in events(step(method)) if event.block == 3 and event.way == AGAIN]
    assert len(partly) < len([one for one in events(step(method, reentrant=True)) if one in partly or one.way == AGAIN])


def test_a_second_forward_is_as_long_as_the_first() -> None:
    model = step("full").model
    said = {"precision": "bf16", "attention": "flash", "seq_len": 512, "checkpointing": True}
    plain, whole = (work(model, reentrant=way, **said) for way in (False, True))
    blocks = [part for part in whole.parts if part.name == "dense"]
    assert blocks
    assert all(part.again == part.forward for part in blocks)
    assert whole.again != plain.again
    assert (whole.forward, whole.backward) == (plain.forward, plain.backward)


def test_a_person_or_a_release_asks_for_it() -> None:
    plain, said = (dsgen.job({"hw": "h100-80g", "model": "7b", "method": "lora", **more}).training
                   for more in ({}, {"reentrant": True}))  # fmt: skip
    assert not reenters(plain, 3, "0.19.8")
    assert recomputed(plain, 3, "0.19.8") is plain
    assert reenters(said, 2, "0.19.8")
    assert why_reenters(said, 2, "0.19.8") == "training.reentrant asks for it"
    assert recomputed(plain, 3, "0.18.9").reentrant
    assert "CheckpointError" in why_reenters(plain, 3, "0.18.9")


def test_qlora_recomputes_so_at_stage_3_unless_a_person_says_otherwise() -> None:
    """Else bitsandbytes keeps what is gathered; the config of a person's own is run by whoever says nothing."""
    scenario = {"hw": "h100-80g", "model": "7b", "method": "qlora"}
    plain, said = (dsgen.job({**scenario, **more}) for more in ({}, {"reentrant": False}))

    assert reenters(plain.training, 3, "0.19.8")
    assert "bitsandbytes keeps every weight" in why_reenters(plain.training, 3, "0.19.8")
    assert not reenters(plain.training, 2, "0.19.8")
    assert not reenters(said.training, 3, "0.19.8")
    assert ask_config(plain, given(CONFIG)).job.training.reentrant is False


@pytest.mark.parametrize(
    ("text", "reentrant"),
    [
        ("gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: true}\n", True),
        ("gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: false}\n", False),
        ("gradient_checkpointing: true\n", False),  # the Trainer of transformers 5
        ("gradient_checkpointing: false\n", None),
        ("bf16: true\nuse_reentrant_gc: true\n", True),
        ("use_peft: true\nload_in_4bit: true\ngradient_checkpointing_kwargs: {use_reentrant: false}\n", True),  # TRL
        ("use_peft: true\n", None),
    ],
)
def test_arguments_of_a_training_program_say_it(tmp_path: Path, text: str, reentrant: bool | None) -> None:
    (tmp_path / "training.yaml").write_text(text, "utf-8")
    assert read_arguments(str(tmp_path / "training.yaml")).fields.get("reentrant") == reentrant
