"""Scenarios of torch's sdpa where no fused kernel takes grouped queries: all scores, in fp32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memory_cases import Case, usual  # benchmarks/memory_cases.py, beside this script

from dsgen.shapes.attention_kinds import GROUPED

__all__ = ["GROUPED_DEPTH", "SEQ_LEN", "with_grouped_queries"]

GROUPED_DEPTH, SEQ_LEN, LORA_RANK = 6, 1000, 8

# (model, GPUs, ZeRO stage, micro-batch, what else is not as usual)
_ROWS: tuple[tuple[str, int, int, int, dict[str, Any]], ...] = (
    ("llama-3.1-8b", 8, 2, 2, {"depth": 32}),
    ("llama-3.1-8b", 8, 2, 2, {"checkpointing": False}),
    ("llama-3.1-8b", 2, 3, 3, {"method": "lora", "seq_len": 2048}),
    ("llama-3.1-8b", 1, 0, 1, {"method": "qlora", "seq_len": 2048}),
    ("llama-3.2-1b", 4, 1, 1, {"checkpointing": False}),
    ("llama-3.2-1b", 2, 2, 2, {"precision": "fp32", "checkpointing": False}),
    ("qwen2.5-1.5b", 1, 0, 1, {"method": "lora", "seq_len": 4096}),
    ("qwen2.5-7b", 8, 3, 2, {"checkpointing": False}),
    ("qwen3-8b", 2, 2, 2, {"method": "lora", "checkpointing": False}),
    ("mistral-7b", 8, 2, 2, {}),
    ("mistral-7b", 8, 2, 1, {"seq_len": 4200, "depth": 2}),  # its window is reached
    ("gemma-3-1b", 2, 1, 2, {"checkpointing": False}),
    ("gemma-3-4b", 4, 2, 2, {"seq_len": 600}),
    ("mixtral-8x7b", 8, 3, 2, {"depth": 2}),
    ("starcoder2-3b", 2, 2, 2, {"checkpointing": False}),
    ("granite-3.1-2b", 2, 2, 2, {"checkpointing": False}),
    ("smollm3-3b", 2, 2, 2, {"checkpointing": False}),
    ("phi-4", 2, 2, 1, {"method": "lora"}),
)


def with_grouped_queries() -> Iterator[Case]:
    """The rows above in fp16, with checkpointing where nothing else is said."""
    for number, (model, gpus, stage, micro_batch, more) in enumerate(_ROWS):
        rest = {**more}
        precision, depth = rest.pop("precision", "fp16"), rest.pop("depth", GROUPED_DEPTH)
        config: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": micro_batch,
            "gradient_accumulation_steps": 1,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
            "zero_optimization": {"stage": stage},
        }
        if precision != "fp32":
            config[precision] = {"enabled": True}
        options = usual(**{"seq_len": SEQ_LEN, "lora_rank": LORA_RANK, "attention": GROUPED, **rest})
        yield Case(name=f"{model} g{number + 1}", model=model, depth=depth, gpus=gpus, config=config, options=options)
