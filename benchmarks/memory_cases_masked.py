"""Scenarios of masks beside torch's sdpa, of padding or a window: keys and values of every query head, and numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memory_cases import Case, usual  # benchmarks/memory_cases.py, beside this script

from dsgen.shapes.attention_kinds import MASKED

__all__ = ["MASKED_DEPTH", "SEQ_LEN", "with_masks"]

MASKED_DEPTH, SEQ_LEN, LORA_RANK = 6, 1000, 8

# (model, GPUs, ZeRO stage, micro-batch, what else is not as usual)
_ROWS: tuple[tuple[str, int, int, int, dict[str, Any]], ...] = (
    ("llama-3.1-8b", 8, 2, 2, {"depth": 32}),
    ("llama-3.1-8b", 8, 2, 2, {"checkpointing": False}),
    ("llama-3.1-8b", 8, 3, 3, {"method": "lora", "seq_len": 2048}),
    ("llama-3.1-8b", 1, 0, 4, {"method": "qlora", "checkpointing": False}),
    ("llama-3.2-1b", 4, 1, 4, {"checkpointing": False, "precision": "fp16"}),
    ("qwen2.5-7b", 8, 3, 2, {"checkpointing": False}),
    ("qwen3-8b", 2, 2, 2, {"method": "lora", "checkpointing": False}),
    ("mistral-7b", 8, 2, 2, {"checkpointing": False}),
    ("gemma-3-1b", 2, 1, 2, {"checkpointing": False}),
    ("gemma-3-4b", 4, 2, 2, {}),
    ("phi-3-mini", 2, 2, 2, {"checkpointing": False}),
    ("mixtral-8x7b", 8, 3, 2, {"depth": 2}),
    ("gpt2-xl", 2, 1, 2, {"checkpointing": False}),
    ("gpt-neox-20b", 8, 3, 2, {}),
    ("opt-1.3b", 2, 2, 3, {"checkpointing": False}),
    ("olmo-2-7b", 4, 2, 2, {"checkpointing": False}),
    ("starcoder2-3b", 2, 2, 2, {"checkpointing": False}),
    ("glm-4-9b-0414", 4, 2, 2, {"checkpointing": False}),
    ("granite-3.1-2b", 2, 2, 2, {"checkpointing": False}),
    ("smollm3-3b", 2, 2, 2, {"checkpointing": False}),
    # Sequences that reach a window, and have no padding.
    ("gemma-3-4b", 2, 2, 2, {"attention": "sdpa", "seq_len": 2048, "method": "lora", "checkpointing": False}),
    ("gemma-3-4b", 2, 2, 1, {"attention": "sdpa", "seq_len": 2048}),
    ("gemma-3-4b", 4, 3, 2, {"attention": "sdpa", "seq_len": 1024, "method": "lora", "checkpointing": False}),
    ("gemma-3-1b", 2, 1, 3, {"attention": "sdpa", "seq_len": 600, "checkpointing": False}),
    ("mistral-7b", 8, 2, 2, {"attention": "sdpa", "seq_len": 4096, "checkpointing": False}),
    ("mistral-7b", 8, 3, 3, {"attention": "sdpa", "seq_len": 4500, "depth": 2}),
    ("starcoder2-3b", 2, 2, 2, {"attention": "sdpa", "seq_len": 4200, "depth": 3}),
)


def with_masks() -> Iterator[Case]:
    """The rows above in bf16, with checkpointing where nothing else is said."""
    for number, (model, gpus, stage, micro_batch, more) in enumerate(_ROWS):
        rest = {**more}
        precision, depth = rest.pop("precision", "bf16"), rest.pop("depth", MASKED_DEPTH)
        config: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": micro_batch,
            "gradient_accumulation_steps": 1,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
            precision: {"enabled": True},
            "zero_optimization": {"stage": stage},
        }
        options = usual(**{"seq_len": SEQ_LEN, "lora_rank": LORA_RANK, "attention": MASKED, **rest})
        yield Case(name=f"{model} x{number + 1}", model=model, depth=depth, gpus=gpus, config=config, options=options)
