"""Scenarios of Muon, whose two groups of parameters ZeRO cuts apart: every stage, offloaded or not, also adapters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memory_cases import Case, usual  # benchmarks/memory_cases.py, beside this script

__all__ = ["DEPTH", "with_muon"]

DEPTH, SEQ_LEN, LORA_RANK = 3, 512, 8
SMALL = 20_000_000  # elements of a bucket that no embedding and few matrices fit into
_CPU = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
_WHOLE = {"reduce_scatter": False}  # else stage 3 refuses Muon

# (model, GPUs, stage, passes, more of zero_optimization, what else is not as usual)
_ROWS: tuple[tuple[str, int, int, int, dict[str, Any], dict[str, Any]], ...] = (
    ("llama-3.1-8b", 1, 0, 1, {}, {}),
    ("llama-3.1-8b", 1, 1, 1, {}, {}),
    ("llama-3.1-8b", 8, 1, 1, {}, {}),
    ("llama-3.1-8b", 8, 1, 2, {"overlap_comm": True}, {}),
    ("llama-3.1-8b", 8, 1, 1, {"overlap_comm": True, "reduce_bucket_size": SMALL}, {}),
    ("llama-3.1-8b", 8, 1, 2, {"overlap_comm": False, "reduce_bucket_size": SMALL}, {}),
    ("llama-3.1-8b", 8, 1, 1, {**_CPU}, {}),
    ("llama-3.1-8b", 1, 2, 1, {}, {}),
    ("llama-3.1-8b", 2, 2, 1, {}, {"precision": "fp16"}),
    ("llama-3.1-8b", 2, 2, 1, {}, {"precision": "fp32"}),
    ("llama-3.1-8b", 8, 2, 1, {"overlap_comm": False, "reduce_bucket_size": SMALL}, {}),
    ("llama-3.1-8b", 8, 2, 2, {}, {}),
    ("llama-3.1-8b", 64, 2, 1, {}, {}),
    ("llama-3.1-8b", 8, 2, 1, {}, {"method": "lora"}),
    ("llama-3.1-8b", 1, 2, 1, {**_CPU}, {}),
    ("llama-3.1-8b", 8, 2, 2, {**_CPU}, {}),
    ("llama-2-7b", 1, 2, 1, {}, {}),
    ("llama-2-7b", 64, 1, 1, {}, {}),
    ("llama-2-7b", 64, 2, 1, {}, {}),
    ("qwen2.5-1.5b", 2, 1, 1, {}, {}),
    ("qwen2.5-1.5b", 8, 2, 1, {}, {}),
    ("qwen2.5-1.5b", 64, 2, 2, {}, {}),
    ("qwen2.5-1.5b", 2, 2, 1, {}, {"checkpointing": False}),
    ("gemma-3-27b", 2, 1, 1, {}, {}),
    ("gemma-3-27b", 8, 2, 1, {}, {}),
    ("qwen3-30b-a3b", 1, 2, 1, {}, {}),
    ("qwen3-30b-a3b", 8, 1, 1, {}, {}),
    ("qwen3-30b-a3b", 8, 2, 2, {}, {}),
    ("llama-3.1-8b", 1, 3, 1, {**_WHOLE}, {}),
    ("llama-3.1-8b", 8, 3, 1, {**_WHOLE}, {}),
    ("llama-3.1-8b", 8, 3, 2, {**_WHOLE, "reduce_bucket_size": 4 * SMALL}, {}),
    ("llama-3.1-8b", 64, 3, 1, {**_WHOLE}, {}),
    ("llama-3.1-8b", 8, 3, 1, {**_WHOLE}, {"method": "lora"}),
    ("llama-2-7b", 2, 3, 1, {**_WHOLE}, {}),
    ("qwen2.5-1.5b", 8, 3, 1, {**_WHOLE}, {}),
    ("llama-3.1-8b", 8, 3, 1, {**_WHOLE, **_CPU}, {}),
)


def with_muon() -> Iterator[Case]:
    """The rows above, one sequence each, with FlashAttention and checkpointing where nothing else is said."""
    for number, (model, gpus, stage, passes, zero, more) in enumerate(_ROWS):
        rest = {**more}
        precision = rest.pop("precision", "bf16")
        config: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": passes,
            "optimizer": {"type": "Muon", "params": {"lr": 1e-4}},
            **({} if precision == "fp32" else {precision: {"enabled": True}}),
            "zero_optimization": {"stage": stage, **zero},
        }
        options = usual(**{"seq_len": SEQ_LEN, "lora_rank": LORA_RANK, **rest})
        yield Case(name=f"{model} m{number + 1}", model=model, depth=DEPTH, gpus=gpus, config=config, options=options)
