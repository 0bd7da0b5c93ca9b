"""A first step's passes have no optimizer states but where they are made before it, and what fails first follows."""

from __future__ import annotations

from typing import Any

import pytest

from dsgen import memory
from dsgen.memory import PhaseMemory

JOB = {"hw": "a100-80g", "model": "1b", "gpus": 4, "tp": 1, "micro_batch": 1, "offload": "none", "seq_len": 512,
       "checkpointing": "none"}  # fmt: skip
# Llama 3 8B on one GPU at ZeRO-2, 128 tokens, died in its first step; it had 46 GB before the first pass and 61 GB
# behind backward (OpenRLHF/OpenRLHF#698).
OPENRLHF = {"hw": "a100-80g", "model": "llama-3-8b", "gpus": 1, "micro_batch": 1, "seq_len": 128,
            "checkpointing": "full"}  # fmt: skip
CONFIG = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2},
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}  # fmt: skip
STATES = "optimizer states"


def phases(**said: Any) -> dict[tuple[str, int], PhaseMemory]:
    return {(one.phase, one.step): one for one in memory({**JOB, **said}).memory.phases}


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("optimizer", ["AdamW", "Lion", "AdamW8bit"])
def test_a_partitioned_optimizer_makes_its_states_in_the_first_step(stage: int, optimizer: str) -> None:
    found = phases(zero_stage=stage, optimizer=optimizer)
    states = found["step", 2].gpu[STATES]

    for phase in ("forward", "backward"):
        assert STATES not in found[phase, 1].gpu
        assert found[phase, 2].gpu[STATES] == states
        assert found[phase, 2].gpu_bytes - found[phase, 1].gpu_bytes <= states
    assert found["step", 1].gpu_bytes <= found["step", 2].gpu_bytes


# (stage, optimizer) -> MiB of init and of the phases of two steps, by dsgen simulate with DeepSpeed 0.19.8.
SIMULATED = {
    (0, "AdamW"): (18127, 15092, 17164, 24170, 15092, 17164, 24170),
    (1, "AdamW"): (4028, 4014, 5991, 6042, 6029, 8005, 7063),
    (2, "AdamW"): (4028, 4014, 5391, 6042, 6029, 7405, 7063),
    (3, "AdamW"): (3093, 3961, 4407, 5989, 7989, 8020, 6493),
    (2, "Adagrad"): (7050, 7036, 8412, 9064, 7036, 8412, 9064),
    (3, "Adagrad"): (4100, 4968, 5415, 6996, 6982, 7013, 6996),
}


@pytest.mark.parametrize(("stage", "optimizer"), SIMULATED)
def test_every_phase_of_two_steps_is_the_simulated_one(stage: int, optimizer: str) -> None:
    config = CONFIG | {
        "zero_optimization": {"stage": stage},
        "optimizer": {"type": optimizer, "params": {"lr": 1e-5}},
    }
    beside = {name: JOB[name] for name in ("hw", "model", "gpus", "seq_len", "checkpointing")}
    found = memory(beside, config=config).memory.phases[1:]
    told = [one.gpu_bytes / 2**20 for one in found]

    assert told + told[1:] * (len(told) == 4) == pytest.approx(list(SIMULATED[stage, optimizer]), rel=1e-3)


@pytest.mark.parametrize("optimizer", ["AdamW", "Lion"])
def test_the_wrapper_of_stage_0_steps_once_before_and_has_them(optimizer: str) -> None:
    found = phases(zero_stage=0, optimizer=optimizer)

    assert found["forward", 1].gpu[STATES] == found["step", 1].gpu[STATES]
    assert ("forward", 2) not in found


def test_without_a_wrapper_stage_0_makes_them_in_the_first_step() -> None:
    found = phases(zero_stage=0, precision="fp32")

    assert STATES not in found["forward", 1].gpu
    assert STATES in found["forward", 2].gpu


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_torchs_adagrad_has_them_when_it_is_made(stage: int) -> None:
    found = phases(zero_stage=stage, optimizer="Adagrad")

    assert found["forward", 1].gpu[STATES] == found["step", 1].gpu[STATES]


@pytest.mark.parametrize("stage", [2, 3])
def test_an_optimizer_on_the_cpu_makes_them_in_the_first_step_too(stage: int) -> None:
    found = phases(zero_stage=stage, offload="optimizer")

    assert STATES not in found["backward", 1].host
    assert found["backward", 2].host[STATES] == found["step", 1].host[STATES]


def test_a_run_whose_states_alone_are_too_much_dies_in_its_first_step() -> None:
    footprint = memory(OPENRLHF, config=CONFIG, deepspeed="0.16")
    first = footprint.first_to_fail
    by = {(one.phase, one.step): one.gpu_bytes / 2**30 for one in footprint.memory.phases}

    assert first is not None
    assert (first.phase, first.place, first.step, first.words) == ("step", "gpu", 1, "optimizer step")
    assert by["backward", 1] == pytest.approx(61, rel=0.02)
    assert by["forward", 1] == pytest.approx(46, rel=0.03)


def test_what_the_first_step_leaves_can_be_what_a_second_forward_dies_of() -> None:
    """The step itself has no activations."""
    footprint = memory(
        {**OPENRLHF, "zero_stage": 3, "offload": "none", "gpus": 4, "gpu_memory": "46GiB", "micro_batch": 24}
    )
    first = footprint.first_to_fail

    assert first is not None
    assert (first.step, first.words) == (2, f"{first.phase} of step 2")
