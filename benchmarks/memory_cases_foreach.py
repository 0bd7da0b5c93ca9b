"""Scenarios of torch's own AdamW, whose step copies moments: every stage and dtype, short sequences among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memory_cases import Case, usual  # benchmarks/memory_cases.py, beside this script

__all__ = ["DEPTH", "with_foreach"]

DEPTH, SEQ_LEN, SHORT, LORA_RANK = 3, 1024, 64, 8
_CPU = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
_SMALL = {"sub_group_size": 100_000_000}  # elements; several groups on each rank
_LOOSE = {"overlap_comm": False, "contiguous_gradients": False}

# (model, GPUs, stage, passes, more of zero_optimization, what else is not as usual)
_ROWS: tuple[tuple[str, int, int, int, dict[str, Any], dict[str, Any]], ...] = (
    ("llama-3.1-8b", 1, 0, 1, {}, {}),
    ("llama-3.1-8b", 8, 0, 2, {}, {"seq_len": SHORT}),
    ("llama-3.1-8b", 2, 0, 1, {}, {"precision": "fp16", "seq_len": SHORT}),
    ("llama-3.1-8b", 2, 0, 1, {}, {"precision": "fp32", "seq_len": SHORT}),
    ("llama-3.1-8b", 1, 1, 1, {}, {"seq_len": SHORT}),
    ("llama-3.1-8b", 8, 1, 1, {}, {}),
    ("llama-3.1-8b", 8, 1, 2, {**_LOOSE}, {"seq_len": SHORT}),
    ("llama-3.1-8b", 2, 2, 1, {}, {"seq_len": SHORT}),
    ("llama-3.1-8b", 2, 2, 1, {}, {"precision": "fp16", "seq_len": SHORT}),
    ("llama-3.1-8b", 2, 2, 1, {}, {"precision": "fp32", "seq_len": SHORT}),
    ("llama-3.1-8b", 8, 2, 2, {}, {"checkpointing": False}),
    ("llama-3.1-8b", 64, 2, 1, {}, {"seq_len": SHORT}),
    ("llama-3.1-8b", 8, 2, 1, {}, {"method": "lora"}),
    ("llama-3.1-8b", 8, 2, 1, {**_CPU}, {}),
    ("llama-3.1-8b", 1, 3, 1, {}, {"seq_len": SHORT}),
    ("llama-3.1-8b", 2, 3, 1, {}, {"seq_len": SHORT}),
    ("llama-3.1-8b", 2, 3, 1, {**_SMALL}, {"seq_len": SHORT}),
    ("llama-3.1-8b", 8, 3, 2, {}, {}),
    ("llama-3.1-8b", 8, 3, 1, {}, {"precision": "fp16", "seq_len": SHORT}),
    ("llama-3.1-8b", 2, 3, 1, {**_SMALL}, {"precision": "fp32", "seq_len": SHORT}),
    ("llama-3.1-8b", 8, 3, 1, {}, {"method": "lora"}),
    ("qwen2.5-1.5b", 1, 2, 1, {}, {"seq_len": SHORT}),
    ("qwen2.5-1.5b", 4, 3, 1, {}, {"seq_len": SHORT}),
    ("gemma-3-27b", 8, 2, 1, {}, {"seq_len": SHORT}),
    ("gemma-3-27b", 8, 3, 2, {}, {"seq_len": SHORT}),
    ("qwen3-30b-a3b", 2, 1, 1, {}, {"seq_len": SHORT}),
    ("qwen3-30b-a3b", 8, 3, 1, {}, {"seq_len": SHORT}),
    ("mistral-7b", 4, 3, 2, {"overlap_comm": False}, {"chunked_loss": True}),
)


def with_foreach() -> Iterator[Case]:
    """The rows above, one sequence each, with FlashAttention and checkpointing where nothing else is said."""
    for number, (model, gpus, stage, passes, zero, more) in enumerate(_ROWS):
        rest = {**more}
        precision = rest.pop("precision", "bf16")
        config: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": passes,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": "offload_optimizer" not in zero}},
            **({} if precision == "fp32" else {precision: {"enabled": True}}),
            "zero_optimization": {"stage": stage, **zero},
        }
        options = usual(**{"seq_len": SEQ_LEN, "lora_rank": LORA_RANK, **rest})
        yield Case(name=f"{model} f{number + 1}", model=model, depth=DEPTH, gpus=gpus, config=config, options=options)
