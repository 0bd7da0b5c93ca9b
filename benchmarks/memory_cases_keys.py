"""Scenarios of keys that few configs say and that change what is held: hpZ, and gradients in no common bucket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memory_cases import Case, usual  # benchmarks/memory_cases.py, beside this script

__all__ = ["KEYS_DEPTH", "with_keys"]

KEYS_DEPTH, SEQ_LEN, LORA_RANK = 4, 512, 8
_CPU = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
_OFTEN = {  # what is gathered goes at once: there is a second copy of most when backward begins
    "stage3_max_live_parameters": 200_000_000,
    "stage3_max_reuse_distance": 0,
    "stage3_prefetch_bucket_size": 20_000_000,
}
_BESIDE = {"overlap_comm": True}
_SMALL = {"reduce_bucket_size": 50_000_000}  # one matrix of a 7B at a time; its head is larger
_ALL = {"stage3_param_persistence_threshold": 0}  # every tensor is partitioned
_PLAIN, _TWO = {"checkpointing": False}, {"passes": 2}


def _hpz(ranks: int, **more: Any) -> dict[str, Any]:
    return {"stage": 3, "zero_hpz_partition_size": ranks, **more}


def _loose(stage: int, **more: Any) -> dict[str, Any]:
    return {"stage": stage, "contiguous_gradients": False, **more}


# (model, GPUs, zero_optimization, what else is not as usual)
_ROWS: tuple[tuple[str, int, dict[str, Any], dict[str, Any]], ...] = (
    ("llama-2-7b", 16, _hpz(8), {}),
    ("llama-2-7b", 16, _hpz(8), {**_PLAIN, **_TWO}),
    ("llama-2-7b", 16, _hpz(16), {**_PLAIN}),
    ("llama-2-7b", 8, _hpz(16), {}),
    ("llama-2-7b", 8, _hpz(4), {**_PLAIN}),
    ("llama-2-7b", 64, _hpz(8, **_OFTEN), {"depth": 32}),
    ("llama-2-7b", 64, _hpz(4), {**_TWO}),
    ("llama-2-7b", 64, _hpz(2, stage3_prefetch_bucket_size=0), {"chunked_loss": True}),
    ("llama-2-7b", 16, _hpz(8), {"precision": "fp32"}),
    ("llama-2-7b", 16, _hpz(8, **_CPU), {"precision": "fp16"}),
    ("llama-2-7b", 16, _hpz(8), {"optimizer": "Adagrad"}),
    ("llama-2-7b", 16, _hpz(8, reduce_scatter=False), {"optimizer": "Muon"}),
    ("llama-2-7b", 16, _hpz(8), {"method": "lora"}),
    ("llama-2-7b", 16, _hpz(8), {"method": "qlora"}),
    ("qwen2.5-0.5b", 16, _hpz(8), {**_PLAIN}),
    ("qwen2.5-1.5b", 64, _hpz(8), {}),
    ("qwen2.5-1.5b", 8, _hpz(2, **_OFTEN), {}),
    ("qwen2.5-1.5b", 16, _hpz(8, **_OFTEN), {**_TWO}),
    ("qwen2.5-7b", 16, _hpz(8, **_ALL), {"method": "lora", "precision": "fp16"}),
    ("qwen2.5-7b", 64, _hpz(8, **_OFTEN, **_ALL), {"method": "lora", **_TWO}),
    ("qwen2.5-7b", 8, _hpz(4), {"method": "qlora", **_PLAIN, **_TWO}),
    ("qwen3-30b-a3b", 16, _hpz(8), {**_PLAIN, **_TWO}),
    ("llama-2-7b", 8, _loose(3), {}),
    ("llama-2-7b", 8, _loose(3), {**_PLAIN, **_TWO}),
    ("llama-2-7b", 16, _loose(3, **_SMALL), {}),
    ("llama-2-7b", 64, _loose(3, reduce_bucket_size=150_000_000), {**_PLAIN, "seq_len": 4096}),
    ("llama-2-7b", 8, _loose(3, **_SMALL), {"precision": "fp32"}),
    ("llama-2-7b", 8, _loose(3, **_SMALL), {"chunked_loss": True}),
    ("llama-2-7b", 8, _loose(3, **_CPU), {}),
    ("llama-2-7b", 8, _loose(3, **_CPU, **_SMALL), {"precision": "fp16"}),
    ("llama-2-7b", 16, _loose(3, zero_hpz_partition_size=8, **_SMALL), {}),
    ("qwen2.5-1.5b", 64, _loose(3, **_SMALL), {}),
    ("qwen2.5-1.5b", 8, _loose(3), {**_PLAIN}),
    ("qwen2.5-1.5b", 2, _loose(3, **_CPU), {}),
    ("qwen2.5-7b", 8, _loose(3, reduce_bucket_size=3_000_000), {"method": "lora", **_PLAIN}),
    ("qwen2.5-7b", 8, _loose(3), {"method": "qlora", **_TWO}),
    ("qwen3-30b-a3b", 8, _loose(3), {}),
    ("llama-2-7b", 8, _loose(1), {}),
    ("llama-2-7b", 8, _loose(1), {**_TWO}),
    ("llama-2-7b", 8, _loose(1, **_BESIDE), {}),
    ("llama-2-7b", 8, _loose(1, **_BESIDE), {**_TWO}),
    ("llama-2-7b", 16, _loose(1, **_BESIDE, **_SMALL), {**_PLAIN, "seq_len": 2048}),
    ("llama-2-7b", 8, _loose(1, **_SMALL), {"precision": "fp32", **_TWO}),
    ("qwen2.5-1.5b", 8, _loose(1, **_BESIDE), {**_TWO}),
    ("qwen2.5-1.5b", 64, _loose(1, **_BESIDE, **_SMALL), {}),
    ("qwen2.5-7b", 16, _loose(1, **_BESIDE, reduce_bucket_size=3_000_000), {"method": "lora", **_PLAIN}),
    ("llama-2-7b", 8, _loose(2), {}),
    ("llama-2-7b", 8, _loose(2), {**_TWO}),
    ("llama-2-7b", 8, _loose(2, **_BESIDE), {**_PLAIN, **_TWO}),
    ("llama-2-7b", 64, _loose(2, **_BESIDE, reduce_bucket_size=120_000_000), {**_PLAIN, "seq_len": 2048}),
    ("llama-2-7b", 2, _loose(2, **_SMALL), {"precision": "fp16", "chunked_loss": True}),
    ("llama-2-7b", 64, _loose(2, **_BESIDE, **_SMALL), {"depth": 32}),
    ("qwen2.5-1.5b", 8, _loose(2, **_BESIDE), {}),
    ("qwen2.5-7b", 8, _loose(2, **_BESIDE), {"method": "qlora", **_TWO}),
    ("qwen3-30b-a3b", 64, _loose(2, **_BESIDE), {}),
    ("llama-2-7b", 8, _loose(2, **_CPU), {}),
    ("llama-2-7b", 8, _loose(1, overlap_comm=True, **_CPU), {**_TWO}),
    ("mixtral-8x22b", 4, _loose(3, **_CPU), {**_PLAIN, **_TWO}),
)


def with_keys() -> Iterator[Case]:
    """The rows above, one sequence each in bf16, with FlashAttention and checkpointing where nothing else is said."""
    for number, (model, gpus, zero, more) in enumerate(_ROWS):
        rest = {**more}
        precision, kind = rest.pop("precision", "bf16"), rest.pop("optimizer", "AdamW")
        depth = rest.pop("depth", KEYS_DEPTH)
        config: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": rest.pop("passes", 1),
            "optimizer": {"type": kind, "params": {"lr": 1e-4}},
            **({} if precision == "fp32" else {precision: {"enabled": True}}),
            "zero_optimization": zero,
        }
        options = usual(**{"seq_len": SEQ_LEN, "lora_rank": LORA_RANK, **rest})
        yield Case(name=f"{model} k{number + 1}", model=model, depth=depth, gpus=gpus, config=config, options=options)
