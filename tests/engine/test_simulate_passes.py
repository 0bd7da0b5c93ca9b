"""Passes of accumulation that do the same once more are written down, not run; the record is the one of running all."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from simulations import simulate

from dsgen.engine.simulate import passes
from dsgen.engine.simulate.ledger import GPU, HOST, Ledger
from dsgen.engine.simulate.results import describe

NOTE = ("aten.empty", "somewhere", "bfloat16", "(2,)")
CAPACITY = 2**34


class Loop:
    """A made-up step: in each pass a kept loss of the pass before goes, and activations come and go."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.losses: list[int] = []
        self.starts: list[passes.Start] = []
        self.weights = self.ledger.born(1000, GPU, "weights", 0, NOTE)
        self.ledger.mark("init", 0, 0)

    def run(self, size: int = 50, gone: bool = True, pin: bool = False, kind: str = "activations") -> None:
        self.starts.append(passes.Start(self.ledger))
        activation = self.ledger.born(size, GPU, kind, 1, NOTE)
        loss = self.ledger.born(4, HOST, "temporaries", 0, NOTE)
        if pin:
            self.ledger.pinned.add(loss)
        self.ledger.emptied()
        if self.losses:
            self.ledger.rename(self.losses[-1], "logits and loss")
            if gone:
                self.ledger.died(self.losses.pop())
        self.losses.append(loss)
        self.ledger.died(activation)
        self.ledger.mark("forward", 1, len(self.starts))

    def alike(self) -> bool:
        return passes.alike(self.ledger, *self.starts[-2:])


def told(ledger: Ledger) -> dict[str, Any]:
    return {**describe(ledger, CAPACITY), "storages": list(ledger.sizes), "pinned": sorted(ledger.pinned)}


@pytest.mark.parametrize(("before", "more"), [*itertools.product((3, 4), (1, 2, 7))])
def test_a_pass_written_down_is_as_if_it_had_run(before: int, more: int) -> None:
    every, some = Loop(), Loop()
    for _ in range(before + more):
        every.run(pin=True)
    for _ in range(before):
        some.run(pin=True)

    assert some.alike()
    shift = passes.repeat(some.ledger, *some.starts[-2:], more)
    for loop, latest in ((every, every.losses[-1]), (some, some.losses[-1] + shift)):
        assert loop.ledger.sizes[latest] == 4
        loop.ledger.rename(latest, "other")
        loop.ledger.died(latest)
        loop.ledger.mark("step", 1, 0)

    assert told(some.ledger) == told(every.ledger)


def test_a_first_pass_is_unlike_the_second() -> None:
    """What it adds to is not there yet; here no loss goes in it."""
    loop = Loop()
    loop.run()
    loop.run()

    assert not loop.alike()


@pytest.mark.parametrize(
    ("two", "three"),
    [
        ({}, {"size": 51}),
        ({}, {"pin": True}),
        ({}, {"kind": "gradients"}),
        ({}, {"gone": False}),
        (
            {"gone": False},
            {"gone": False},
        ),  # the same twice, and each keeps more than the one before
    ],
)
def test_passes_that_differ_are_run(two: dict[str, Any], three: dict[str, Any]) -> None:
    loop = Loop()
    loop.run()
    loop.run(**two)
    loop.run(**three)

    assert not loop.alike()


def test_a_pass_that_frees_what_is_older_is_run() -> None:
    loop = Loop()
    for _ in range(3):
        loop.run()
    assert loop.alike()

    loop.ledger.died(loop.weights)

    assert not loop.alike()


LLAMA = {
    "model_type": "llama",
    "vocab_size": 500,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
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
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "stage 0": ({"stage": 0}, {}),
    "stage 1": ({"stage": 1, **BUCKETS}, {}),
    "stage 1, optimizer offloaded": ({"stage": 1, "offload_optimizer": CPU, **BUCKETS}, {}),
    "stage 2, overlapped": ({"stage": 2, "overlap_comm": True, **BUCKETS}, {}),
    "stage 2, optimizer offloaded": ({"stage": 2, "offload_optimizer": CPU, **BUCKETS}, {}),
    "stage 3, overlapped": ({**STAGE_3, "overlap_comm": True}, {}),
    "stage 3, all offloaded": ({**STAGE_3, "offload_optimizer": CPU, "offload_param": CPU}, {}),
    "stage 3, optimizer on drives": (
        {**STAGE_3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}},
        {},
    ),
    # At stage 3 DeepSpeed gathers adapters in another order in each run: two that leave nothing out differ too.
    "stage 2, adapters, checkpointed": (
        {"stage": 2, **BUCKETS},
        {"method": "lora", "lora_rank": 4, "checkpointing": True},
    ),
}
PASSES = 7


@pytest.mark.proof
@pytest.mark.parametrize("name", CASES)
def test_passes_left_out_change_no_byte_of_the_answer(name: str) -> None:
    zero, more = CASES[name]
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": PASSES,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "zero_optimization": zero,
    }
    request = {"config": config, "model": LLAMA, "world_size": 4, "seq_len": 16, **more}

    run, written = (simulate({**request, "every_pass": every}) for every in (True, False))

    assert "error" not in run, run["error"]
    for of_this_machine in ("seconds", "rss_bytes"):
        del run[of_this_machine], written[of_this_machine]
    assert written == run
    assert [one["micro_batch"] for one in run["phases"] if (one["phase"], one["step"]) == ("backward", 2)] == [
        *range(1, PASSES + 1)
    ]


@pytest.mark.proof
def test_of_128_passes_four_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is told of those left out: it counts passes to know the last one."""
    from dsgen.engine.simulate import runs
    from dsgen.engine.simulate.recorder import Recorder

    loop = Loop()
    recorder = Recorder(loop.ledger, {})
    ran = []

    def run(_: Any, engine: Engine, __: Any, micro_batch: int) -> None:
        assert engine.micro_steps == micro_batch - 1
        ran.append(micro_batch)
        engine.micro_steps += 1
        recorder.collectives["gather"] = recorder.collectives.get("gather", 0) + 5  # type: ignore[index, call-overload]
        loop.run()

    monkeypatch.setattr(runs, "_pass", run)
    monkeypatch.setattr(runs, "_end", lambda *_: None)
    runs._train({"every_pass": False, "steps": 2, "evaluation": None}, Engine(), recorder, 1)

    assert ran == [1, 2, 3, 128]
    assert recorder.collectives == {"gather": 5 * 128}
    assert [mark[2] for mark in loop.ledger.marks[1:]][:-1] == [*range(1, 128)]


class Engine:
    """As much of DeepSpeed's engine as counts passes."""

    micro_steps = 0
    module = None

    def gradient_accumulation_steps(self) -> int:
        return 128
