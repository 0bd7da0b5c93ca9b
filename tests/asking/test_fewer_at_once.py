"""A smaller micro-batch as a change that makes a config fit: alone, or with an allocator that grows its segments."""

from __future__ import annotations

from typing import Any

import dsgen
from dsgen.asking.memory_questions.counterfactuals import Change

WANTED: dict[str, Any] = {
    "hw": "a100-40g",
    "gpus": 4,
    "model": "mistral-7b",
    "seq_len": 8192,
    "checkpointing": "full",
    "attention": "flash",
}
CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": 16777216,
        "stage3_prefetch_bucket_size": 15099494,
        "stage3_param_persistence_threshold": 40960,
    },
}
SMALLER = {"micro_batch", "accumulation"}


def offered(**more: Any) -> list[Change]:
    changes = dsgen.memory({**WANTED, **more}, config=CONFIG).counterfactuals.changes
    return [change for change in changes if SMALLER <= {*change.options} <= SMALLER | {"expandable_segments"}]


def verdict(micro_batch: int, accumulation: int, **more: Any) -> str:
    sizes = {"train_micro_batch_size_per_gpu": micro_batch, "gradient_accumulation_steps": accumulation}
    return dsgen.memory({**WANTED, **more}, config={**CONFIG, **sizes}).verdict.value


def test_it_is_offered_with_the_allocator_s_word_where_neither_is_enough_and_holds() -> None:
    (change,) = offered()

    assert change.options == {"expandable_segments": True, "micro_batch": 1, "accumulation": 8}
    assert change.words.startswith("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and micro-batch 1 x 8 steps")
    assert verdict(1, 8, expandable_segments=True) == "fits"
    assert {verdict(1, 8), verdict(4, 2, expandable_segments=True)} == {"uncertain", "does not fit"}


def test_it_is_offered_alone_where_the_allocator_grows_its_segments_already() -> None:
    (change,) = offered(expandable_segments=True)

    assert change.options == {"micro_batch": 1, "accumulation": 8}


def test_it_is_offered_where_there_is_no_ram_for_what_else_would_fit() -> None:
    """Without it every other strategy needs an optimizer or parameters away from the GPU."""
    small = {**WANTED, "host_memory": "30GiB", "set": {"hardware.nvme_capacity": 0}}
    first = dsgen.memory(dsgen.scenario(small), config=CONFIG).counterfactuals.changes[0]

    assert first.options == {"expandable_segments": True, "micro_batch": 1, "accumulation": 8}
    assert first.memory.verdict.value == "fits"


def test_it_is_not_offered_where_it_does_not_make_it_fit() -> None:
    assert offered(seq_len=32768) == []
