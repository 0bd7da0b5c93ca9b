"""Scenarios with keys whose memory is in the interval alone: fp32 gradients, a part that stays, ZeRO++'s quantizing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memory_cases import Case  # benchmarks/, beside this script

__all__ = ["DEEPER", "WIDENED_DEPTH", "widening"]

WIDENED_DEPTH, DEEPER = 3, 8  # blocks; of those that gather
_SUMS = {"data_types": {"grad_accum_dtype": "fp32"}}
_TRAVELS = {"communication_data_type": "fp32"}
_SMALL = {"reduce_bucket_size": 20_000_000}
_CPU = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
_QUANTIZED = {"zero_quantized_weights": True, "zero_quantized_gradients": True}
_GROUPS = {"sub_group_size": 100_000_000}  # elements: several groups on each rank

# model, GPUs, precision, passes, method, section zero_optimization, keys
_RUNS: tuple[tuple[str, int, str, int, str, dict[str, Any], dict[str, Any]], ...] = (
    ("llama-2-7b", 8, "bf16", 1, "full", {"stage": 1}, _SUMS),
    ("llama-2-7b", 8, "bf16", 2, "full", {"stage": 1, "overlap_comm": True, **_SMALL}, _SUMS),
    ("llama-2-7b", 8, "bf16", 2, "full", {"stage": 1, **_CPU}, _SUMS),
    ("llama-2-7b", 8, "fp16", 3, "full", {"stage": 1}, _SUMS),
    ("llama-2-7b", 8, "bf16", 1, "full", {"stage": 2}, _SUMS),
    ("llama-2-7b", 64, "bf16", 3, "full", {"stage": 2, "overlap_comm": True}, _SUMS),
    ("llama-2-7b", 2, "bf16", 2, "full", {"stage": 2, **_CPU}, _SUMS),
    ("llama-2-7b", 8, "bf16", 2, "lora", {"stage": 2}, _SUMS),
    ("llama-2-7b", 8, "bf16", 1, "full", {"stage": 3}, _SUMS),
    ("llama-2-7b", 2, "bf16", 2, "full", {"stage": 3, **_CPU}, _SUMS),
    ("llama-2-7b", 8, "fp32", 1, "full", {"stage": 2}, _SUMS),
    ("qwen2.5-1.5b", 8, "bf16", 1, "full", {"stage": 1}, _TRAVELS),
    ("qwen2.5-1.5b", 8, "bf16", 2, "full", {"stage": 2, "overlap_comm": True, **_SMALL}, _TRAVELS),
    ("qwen2.5-1.5b", 2, "bf16", 1, "full", {"stage": 2}, _TRAVELS),
    ("qwen2.5-1.5b", 8, "fp16", 1, "full", {"stage": 3}, _TRAVELS),
    ("qwen2.5-1.5b", 64, "bf16", 2, "full", {"stage": 3, **_CPU, **_SMALL}, _TRAVELS),
    ("qwen2.5-1.5b", 8, "bf16", 2, "full", {"stage": 1, **_CPU}, {**_SUMS, **_TRAVELS}),
    ("qwen2.5-1.5b", 8, "bf16", 1, "full", {"stage": 2}, {**_SUMS, **_TRAVELS}),
    ("qwen2.5-1.5b", 512, "bf16", 3, "full", {"stage": 2, "overlap_comm": True}, _SUMS),
    ("qwen2.5-1.5b", 512, "bf16", 2, "full", {"stage": 2, **_SMALL}, _SUMS),
    ("llama-2-7b", 64, "bf16", 3, "full", {"stage": 1}, _TRAVELS),
    ("llama-2-7b", 16, "bf16", 1, "full", {"stage": 3, "zero_quantized_weights": True}, {}),
    ("llama-2-7b", 16, "bf16", 2, "full", {"stage": 3, "zero_quantized_weights": True, **_CPU}, {}),
    ("qwen2.5-1.5b", 16, "bf16", 1, "full", {"stage": 3, "zero_quantized_weights": True}, {}),
    ("llama-2-7b", 16, "bf16", 1, "lora", {"stage": 3, "zero_quantized_nontrainable_weights": True}, {}),
    ("llama-2-7b", 16, "bf16", 1, "full", {"stage": 3, "zero_quantized_gradients": True}, {}),
    ("llama-2-7b", 16, "fp16", 2, "full", {"stage": 3, "zero_quantized_gradients": True, **_SMALL}, {}),
    ("llama-2-7b", 16, "bf16", 1, "full", {"stage": 3, **_QUANTIZED, "zero_hpz_partition_size": 8}, {}),
    ("qwen2.5-1.5b", 64, "bf16", 2, "full", {"stage": 3, **_QUANTIZED, "zero_hpz_partition_size": 8}, {}),
    *(
        ("llama-2-7b", 2, "bf16", 1, "full", {"stage": 3, "offload_optimizer": _offload, **_GROUPS}, {})
        for _offload in ({**_CPU["offload_optimizer"], "ratio": ratio} for ratio in (0.1, 0.5, 0.9))
    ),
)


def widening() -> Iterator[Case]:
    """Every run."""
    for number, (model, gpus, precision, passes, method, zero, keys) in enumerate(_RUNS):
        config: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": passes,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
            "zero_optimization": zero,
            **({} if precision == "fp32" else {precision: {"enabled": True}}),
            **keys,
        }
        options = {
            "seq_len": 512,
            "attention": "flash",
            "checkpointing": True,
            "method": method,
            "lora_rank": 16,
            "chunked_loss": False,
        }
        name = f"{model} w{number + 1}"
        depth = DEEPER if any("quantized" in key for key in zero) else WIDENED_DEPTH
        yield Case(name=name, model=model, depth=depth, gpus=gpus, config=config, options=options)
