"""The program of a simulated step says what the engine really queues, and asking for it changes no byte of memory."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import pytest
from simulations import simulate

from dsgen.simulating import durations

pytestmark = pytest.mark.proof

LAYERS, HIDDEN, INNER, WORDS, TOKENS = 3, 64, 112, 500, 32
LLAMA = {
    "model_type": "llama",
    "vocab_size": WORDS,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
BUCKETS = {"reduce_bucket_size": 20_000, "allgather_bucket_size": 20_000}
STAGE_3 = {
    "stage": 3,
    "reduce_bucket_size": 20_000,
    "stage3_prefetch_bucket_size": 10_000,
    "stage3_max_live_parameters": 60_000,
    "stage3_max_reuse_distance": 60_000,
    "stage3_param_persistence_threshold": 100,
}
CPU = {"device": "cpu", "pin_memory": True}
CASES: dict[str, tuple[dict[str, Any], int, dict[str, Any]]] = {
    "stage 2": ({"stage": 2, **BUCKETS}, 1, {}),
    "stage 3": (STAGE_3, 1, {}),
    "stage 3, checkpointed, accumulated": (STAGE_3, 5, {"checkpointing": True}),
    "stage 3, all offloaded": ({**STAGE_3, "offload_optimizer": CPU, "offload_param": CPU}, 1, {}),
}


@functools.cache
def answered(case: str, time: bool = True, every_pass: bool = False) -> dict[str, Any]:
    zero, accumulation, more = CASES[case]
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": accumulation,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "zero_optimization": zero,
    }
    asked = {"config": config, "model": LLAMA, "world_size": 4, "seq_len": TOKENS, "time": time, **more}
    return simulate({**asked, "every_pass": every_pass})


def entries(answer: dict[str, Any]) -> list[list[Any]]:
    """The program's entries in order, its loops written out."""
    program, done = answer["program"], 0
    order: list[int] = []
    for begin, end, count in program["loops"]:
        order += program["order"][done:end] + program["order"][begin:end] * count
        done = end
    order += program["order"][done:]
    return [program["entries"][number] for number in order]


def without_program(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in ("program", "seconds", "rss_bytes")}


@pytest.mark.parametrize("case", CASES)
def test_memory_is_the_same_with_and_without_a_program(case: str) -> None:
    plain = answered(case, time=False)

    assert "program" not in plain
    assert without_program(answered(case)) == without_program(plain)


@pytest.mark.parametrize("case", CASES)
def test_products_are_those_of_the_model(case: str) -> None:
    """Forward 2 FLOPs for each weight and token, backward twice that; recomputed is forward but for the head."""
    _, passes, more = CASES[case]
    blocks, head = LAYERS * (4 * HIDDEN**2 + 3 * HIDDEN * INNER), WORDS * HIDDEN
    attention = LAYERS * 4 * HIDDEN * TOKENS * (TOKENS + 1) // 2  # forward, of a sequence

    listed = entries(answered(case))

    products = [one for one in listed if one[0] == "product" and HIDDEN in one[4:7]]  # the rotation's is small
    kernels = [one for one in listed if one[0] == "attention"]
    model = sum(durations.flops(one) for one in products if not one[3])
    again = sum(durations.flops(one) for one in products if one[3])
    assert model == passes * 6 * (blocks + head) * 2 * TOKENS
    assert again == (passes * 2 * blocks * 2 * TOKENS if more else 0)
    assert sum(durations.flops(one) for one in kernels if not one[3]) == passes * 2 * 3 * attention
    assert sum(durations.flops(one) for one in kernels if one[3]) == (passes * 2 * attention if more else 0)


@pytest.mark.parametrize("case", CASES)
def test_collectives_are_those_that_the_ledger_counts(case: str) -> None:
    answer = answered(case)
    counted = Counter[tuple[str, int, int]]()
    for one in answer["collectives"]:
        if one["step"] == 2:
            counted[one["kind"], one["bytes"], one["ranks"]] += one["count"]

    listed = [one for one in entries(answer) if one[0] == "collective"]

    assert Counter((one[4], one[5], one[6]) for one in listed) == counted
    assert all(one[7] == one[6] for one in listed)  # four ranks lie in one node


@pytest.mark.parametrize("case", CASES)
def test_what_backward_does_belongs_to_the_module_whose_forward_it_undoes(case: str) -> None:
    """Two products in backward for one in forward, of every linear layer, recomputed or not."""
    _, passes, _ = CASES[case]
    forward, backward = Counter[str](), Counter[str]()
    phase = module = ""
    for one in entries(answered(case)):
        phase = one[1] if one[0] == "phase" else phase
        module = one[1] if one[0] == "module" else module
        if one[0] == "product" and HIDDEN in one[4:7] and not one[3]:
            (forward if phase == "forward" else backward)[module] += 1

    names = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
             "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")  # fmt: skip
    linear = {f"model.layers.{layer}.{name}" for layer in range(LAYERS) for name in names} | {"lm_head"}
    assert forward == dict.fromkeys(linear, passes)
    assert backward == dict.fromkeys(linear, 2 * passes)


@pytest.mark.parametrize("case", CASES)
def test_the_program_holds_as_much_as_the_ledger_says(case: str) -> None:
    """At its highest moment; of passes that are left out it says nothing, and they hold what the others do."""
    answer = answered(case)

    peaks = [one["gpu"]["peak_bytes"] for one in answer["phases"] if one["step"] == 2]
    assert max(size for _, size in answer["program"]["held"]) == max(peaks)


def test_every_collective_is_waited_for() -> None:
    """DeepSpeed waits for each that it or torch queues, once, at once or later."""
    kinds = Counter(one[0] for one in entries(answered("stage 3")))

    assert kinds["collective"] > 10
    assert kinds["join"] == kinds["collective"]


def test_repeated_passes_do_what_they_stand_for() -> None:
    """But for the slots: a pass hands some on to the next."""
    case = "stage 3, checkpointed, accumulated"

    def plain(answer: dict[str, Any]) -> list[list[Any]]:
        kept = ("product", "attention", "traffic", "copy", "call", "hook", "item", "wait_stream", "sync_stream")
        return [one for one in entries(answer) if one[0] in kept]

    assert answered(case)["program"]["loops"]
    assert plain(answered(case)) == plain(answered(case, every_pass=True))


def test_stage_3_pays_hooks_limits_its_fetches_and_waits_for_its_stream() -> None:
    kinds = Counter(one[0] for one in entries(answered("stage 3")))

    modules = 1 + LAYERS * (7 + 2) + 1 + 1  # embedding, products and norms of the blocks, last norm, head
    assert kinds["hook"] == 2 * modules
    assert kinds["call"] == modules
    assert kinds["sync_event"] > 0
    assert kinds["wait_stream"] > kinds["hook"]


def test_offload_copies_both_ways_and_steps_on_the_host() -> None:
    listed = entries(answered("stage 3, all offloaded"))
    elements = answered("stage 3, all offloaded")["engine"]["parameters"]

    adam = [one for one in listed if one[0] == "adam"]
    directions = {one[3] for one in listed if one[0] == "copy"}
    assert sum(one[1] for one in adam) == pytest.approx(elements / 4, rel=0.02)
    assert sum(one[2] for one in adam) == 28 * sum(one[1] for one in adam)
    assert directions == {"to_device", "to_host"}


def test_a_program_is_the_same_every_time() -> None:
    first, again = answered("stage 3"), answered("stage 3", every_pass=True)  # one pass: nothing is left out

    assert again["program"] == first["program"]


def test_a_collective_knows_how_many_of_its_ranks_share_a_node() -> None:
    """AutoTP 2 on two nodes of 8: pairs lie in a node, the replicas of a shard are every second rank."""
    zero, _, _ = CASES["stage 2"]
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "zero_optimization": {**zero, "stage": 1},
        "tensor_parallel": {"autotp_size": 2},
    }

    found = simulate({"config": config, "model": LLAMA, "world_size": 16, "seq_len": TOKENS, "time": True})

    shares = {(one[6], one[7]) for one in entries(found) if one[0] == "collective"}
    assert {(2, 2), (8, 4)} <= shares <= {(1, 1), (2, 2), (8, 4), (16, 8)}
