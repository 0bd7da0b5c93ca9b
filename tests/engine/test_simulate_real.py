"""Simulations of the real engine: parts that add up, states of the ZeRO paper, collectives, and words about errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
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
ELEMENTS = 2 * 512 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64
SPREAD = 2 * 512 * 64 / ELEMENTS  # bytes an element: a share that ends inside the largest parameter holds all of it
ROTARY = 64  # bytes of the rotary embedding's frequencies, which are no parameters


def simulate(world: int, zero: dict[str, Any], **more: Any) -> dict[str, Any]:
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero}
    config["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-3}}
    config.update(more.pop("config", {}))
    return simulations.simulate({"config": config, "model": MODEL, "world_size": world, "seq_len": 32, **more})


def test_the_server_answers_as_a_process_of_its_own_does():
    """All other tests ask the server, which has loaded the libraries before it hears of a request."""
    zero = {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": True}}
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero}
    config["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-3}}
    request = {"config": config, "model": MODEL, "world_size": 4, "seq_len": 32, "method": "lora", "lora_rank": 2}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "dsgen.engine.simulate"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=300,
        check=True,
    )

    alone, served = json.loads(done.stdout), simulations.simulate(request)

    assert "error" not in alone, alone["error"]
    for of_this_machine in ("seconds", "rss_bytes"):
        del alone[of_this_machine], served[of_this_machine]
    assert served == alone


@pytest.mark.parametrize(
    ("stage", "weights", "gradients", "master"),
    [
        (0, 2, (2, 2), 4),
        (1, 2, (2 / 64, 2), 4 / 64),
        (2, 2, (2 / 64, 2 / 64 + SPREAD), 4 / 64),
        (3, 2 / 64, (2 / 64, 2 / 64), 4 / 64),
    ],
)
def test_states_are_those_of_the_zero_paper(stage, weights, gradients, master):
    """Bytes for each element: figure 1 and table 1 of the ZeRO paper (arXiv 1910.02054) at a degree of 64.

    16 without ZeRO: 2 of weights, 2 of gradients and 12 of optimizer (fp32 weights, momentum, variance). Pos divides
    the 12, Pos+g the gradients too, Pos+g+p all. DeepSpeed pads to whole shares; its stage 1 drops the gradients that
    it does not step, and stages 1 and 2 keep them by whole parameters.
    """
    found = simulate(64, {"stage": stage})

    *_, before, after = (phase["gpu"]["end_parts"] for phase in found["phases"])  # of backward, of step
    least, most = gradients
    assert found["engine"]["parameters"] == ELEMENTS
    assert after["weights"] == pytest.approx(weights * ELEMENTS, rel=0.01)
    assert after["fp32 master weights"] == pytest.approx(master * ELEMENTS, rel=0.01)
    assert after["optimizer states"] == 2 * after["fp32 master weights"]
    assert 0.99 * least * ELEMENTS <= before["gradients"] <= 1.01 * most * ELEMENTS


@pytest.mark.parametrize(
    ("zero", "on_gpu", "on_host"),
    [
        ({"stage": 2}, 2, 0),
        ({"stage": 3}, 2 / 64, 0),
        ({"stage": 3, "offload_param": {"device": "cpu"}}, 0, 2 / 64),
    ],
)
def test_offload_leaves_on_the_gpu_what_the_papers_say(zero, on_gpu, on_host):
    """Bytes for each element at a degree of 64; ZeRO-Offload (arXiv 2101.06840, section 3), ZeRO-Infinity (2104.07857).

    ZeRO-Offload: the GPU keeps the 2 of weights (divided at stage 3), the host the 12 of optimizer and the gradients,
    divided. ZeRO-Infinity puts the weights on the host too. The gradients wait there in fp32, 4 for each element, where
    the paper says 2, and stage 3 has the 16-bit ones besides.
    """
    small = {"reduce_bucket_size": 1000, "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0}
    found = simulate(64, {**zero, **small, "offload_optimizer": {"device": "cpu"}})

    gpu, host = (found["phases"][-1][place]["end_parts"] for place in ("gpu", "host"))
    waiting = 4 + 2 * (zero["stage"] == 3)
    assert gpu.get("weights", 0) == pytest.approx(on_gpu * ELEMENTS, rel=0.01, abs=ROTARY)
    assert {"fp32 master weights", "optimizer states", "gradients"} & set(gpu) == set()
    assert host.get("weights", 0) == pytest.approx(on_host * ELEMENTS, rel=0.01)
    assert host["fp32 master weights"] == pytest.approx(4 / 64 * ELEMENTS, rel=0.01)
    assert host["optimizer states"] == 2 * host["fp32 master weights"]
    assert host["gradients"] == pytest.approx(waiting / 64 * ELEMENTS, rel=0.01)


@pytest.mark.parametrize(
    ("zero", "groups"),
    [
        ({"stage": 3}, 1),
        ({"stage": 3, "sub_group_size": ELEMENTS // 8}, 4),
        ({"stage": 3, "offload_param": {"device": "cpu"}}, 0),  # cast into what is there
        ({"stage": 2}, 0),
    ],
)
def test_what_returns_to_the_gpu_at_stage_3_is_cast_in_memory_of_its_own(zero, groups):
    """A group at a time, in 16 bits: a copy that the host waits for is cast where its source is (Copy.cu of torch)."""
    found = simulate(2, {**zero, "offload_optimizer": {"device": "cpu"}})

    step = found["phases"][-1]["host"]
    cast = 2 * ELEMENTS / 2 / groups if groups else 0
    assert step["peak_bytes"] - step["end_bytes"] == pytest.approx(cast, rel=0.2, abs=20_000)


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
        ({"config": {"optimizer": {"type": "OneBitAdam", "params": {}}}}, "OneBitAdam is not a supported DeepSpeed"),
        ({"seq_len": 0}, "seq_len is 0"),
    ],
)
def test_an_error_is_told_in_the_engines_words(more, words):
    found = simulate(4, {"stage": 0}, **more)

    assert words in found["error"]["message"]
    assert found["versions"]["deepspeed"]


WIDER = {**MODEL, "vocab_size": 8192, "hidden_size": 512, "intermediate_size": 2048, "max_position_embeddings": 2048}


def reserved(**more: Any) -> dict[str, Any]:
    """What the allocator says of two blocks of some width, whose activations are segments of their own."""
    told = simulate(4, {"stage": 2}, model=WIDER, seq_len=2048, **more)
    allocator: dict[str, Any] = told["peak"]["gpu"]["allocator"]
    return allocator


def test_the_least_gpu_lies_between_what_is_allocated_and_what_is_reserved():
    told = reserved()

    assert told["allocated_peak_bytes"] <= told["least_bytes"] <= told["reserved_peak_bytes"]
    assert told["expandable_least_bytes"] <= told["expandable_reserved_peak_bytes"]
    assert not reserved(gpu_memory_bytes=told["least_bytes"])["out_of_memory"]
    assert reserved(gpu_memory_bytes=told["allocated_peak_bytes"] // 2)["out_of_memory"]


def test_workspaces_lie_among_the_tensors_and_are_in_no_number():
    """One with forward's first product and one with backward's; 20 MiB are a segment of their own, or part of one."""
    plain, found = reserved(), reserved(workspace_bytes=20 * 2**20)

    assert found["allocated_peak_bytes"] == plain["allocated_peak_bytes"]
    assert found["reserved_peak_bytes"] != plain["reserved_peak_bytes"]
    assert found["reserved_peak_bytes"] >= found["allocated_peak_bytes"]


def test_the_settings_and_an_emptied_cache_change_what_is_reserved_and_not_what_is_allocated():
    """The Trainer empties it between forward and backward of a step, so what forward left idle goes back."""
    plain, emptied = reserved(), reserved(empty_cache_steps=1)
    growing = reserved(alloc_conf="expandable_segments:True")

    assert growing["reserved_peak_bytes"] == plain["expandable_reserved_peak_bytes"]
    assert emptied["released_segments"] > plain["released_segments"]
    assert emptied["allocated_peak_bytes"] == plain["allocated_peak_bytes"]


def test_steps_have_their_own_lengths():
    """The longest step decides the peak wherever it stands; every phase of a shorter one holds less."""
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}
    config["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-3}}
    request = {"config": config, "model": WIDER, "world_size": 4, "seq_len": 2048}

    told = simulations.simulate({**request, "steps": 3, "lengths": [1024, 2048, 512]})
    fixed = simulations.simulate({**request, "steps": 3})
    peaks = {one["step"]: one["gpu"]["peak_bytes"] for one in told["phases"] if one["phase"] == "forward"}

    assert peaks[3] < peaks[1] < peaks[2]
    assert told["peak"]["gpu"]["bytes"] == fixed["peak"]["gpu"]["bytes"]
