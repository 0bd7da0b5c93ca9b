"""The bucket of gradients as a change that makes a config fit: what is offered, and that it holds as it is told."""

from __future__ import annotations

from typing import Any

import dsgen
from dsgen.asking.memory_questions.counterfactuals import Change

BUCKET = "zero_optimization.reduce_bucket_size"
WANTED: dict[str, Any] = {
    "hw": "rtx4090-24g",
    "gpus": 2,
    "model": "qwen3-8b",
    "method": "lora",
    "lora_rank": 32,
    "lora_dropout": 0.05,
    "seq_len": 4096,
    "checkpointing": "full",
    "chunked_loss": True,
    "liger_kernels": True,
    "attention": "flash",
}
CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 8,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
}


def changes(**more: Any) -> tuple[Change, ...]:
    return dsgen.memory({**WANTED, **more}, config=CONFIG).counterfactuals.changes


def test_a_smaller_bucket_is_offered_alone_where_it_is_enough_and_holds() -> None:
    offered = changes(expandable_segments=True)[0]
    (setting,) = offered.options["set"]
    bucket = int(setting.removeprefix(f"{BUCKET}="))

    assert {*offered.options} == {"set"}
    assert bucket < 500_000_000
    zero = {"stage": 2, "reduce_bucket_size": bucket}
    again = dsgen.memory({**WANTED, "expandable_segments": True}, config={**CONFIG, "zero_optimization": zero})
    assert again.verdict.value == "fits"
    assert again.memory.gpu.high_bytes == offered.memory.gpu.high_bytes
    assert dsgen.memory({**WANTED, "expandable_segments": True}, config=CONFIG).verdict.value == "uncertain"


def test_it_is_offered_with_the_allocator_s_word_where_neither_is_enough() -> None:
    offered = changes()[0]

    assert {*offered.options} == {"expandable_segments", "set"}
    assert "expandable_segments:True, and gradients are reduced in buckets of" in offered.words


def test_it_is_not_offered_where_it_does_not_make_it_fit() -> None:
    told = [setting for change in changes(chunked_loss=False) for setting in change.options.get("set", ())]

    assert not any(setting.startswith(BUCKET) for setting in told)
