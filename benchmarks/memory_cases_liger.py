"""Scenarios with Liger: its loss as of older releases, which hold other copies of logits, and its other kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memory_cases import Case, usual  # benchmarks/memory_cases.py, beside this script

__all__ = ["LIGER_DEPTH", "with_liger"]

LIGER_DEPTH, LORA_RANK = 4, 8
_LOSS = {"chunked_loss": True}
_STATES = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}

# (release, model, GPUs, stage, more of zero_optimization, sequences, what else is not as usual)
_ROWS: tuple[tuple[str, str, int, int, dict[str, Any], int, dict[str, Any]], ...] = (
    ("0.6.2", "qwen2.5-7b", 4, 3, {}, 1, {"seq_len": 8192}),
    ("0.5.6", "qwen2.5-7b", 4, 3, {}, 1, {"seq_len": 8192}),
    ("0.5.3", "qwen2.5-7b", 4, 3, {}, 1, {"seq_len": 8192}),
    ("0.6.2", "qwen2.5-7b", 64, 3, {}, 2, {"seq_len": 8192, "checkpointing": False}),
    ("0.5.6", "qwen2.5-7b", 64, 3, {}, 2, {"seq_len": 8192, "checkpointing": False}),
    ("0.5.3", "qwen2.5-7b", 64, 3, {}, 2, {"seq_len": 8192, "checkpointing": False}),
    ("0.5.0", "qwen2.5-7b", 64, 3, {}, 2, {"seq_len": 8192, "checkpointing": False}),
    ("0.3.0", "qwen2.5-7b", 64, 3, {}, 2, {"seq_len": 8192, "checkpointing": False}),
    ("0.6.2", "llama-3.1-8b", 8, 2, {}, 4, {"seq_len": 4096, "checkpointing": False}),
    ("0.5.6", "llama-3.1-8b", 8, 2, {}, 4, {"seq_len": 4096, "checkpointing": False}),
    ("0.3.0", "llama-3.1-8b", 8, 2, {}, 4, {"seq_len": 4096, "checkpointing": False}),
    ("0.5.0", "llama-3.1-8b", 8, 2, {}, 4, {"seq_len": 4096}),
    ("0.3.0", "llama-3.1-8b", 8, 1, {}, 1, {"seq_len": 4096}),
    ("0.5.6", "llama-3.2-1b", 2, 2, _STATES, 8, {"seq_len": 2048}),
    ("0.3.0", "llama-3.2-1b", 2, 2, _STATES, 8, {"seq_len": 2048}),
    ("0.3.0", "llama-3.2-1b", 2, 2, {}, 8, {"seq_len": 2048, "precision": "fp32"}),
    ("0.5.3", "mistral-7b", 8, 3, {}, 8, {"seq_len": 4096, "method": "lora"}),
    ("0.3.0", "mistral-7b", 1, 0, {}, 8, {"seq_len": 4096, "method": "lora"}),
    ("0.5.6", "gemma-2-2b", 8, 1, _STATES, 2, {"seq_len": 4096}),
    ("0.5.0", "gemma-2-2b", 8, 1, _STATES, 2, {"seq_len": 4096}),
)
# The same with Liger's SwiGLU or GeGLU, norms and RoPE as of a release, and with its newest loss where it says so.
_KERNELS: tuple[tuple[str, str, int, int, dict[str, Any], int, dict[str, Any]], ...] = (
    ("0.8.5", "llama-3.1-8b", 1, 0, {}, 1, {"seq_len": 2048, "checkpointing": False}),
    ("0.8.5", "llama-3.1-8b", 8, 0, {}, 2, {"seq_len": 2048}),
    ("0.8.5", "llama-3.1-8b", 8, 2, {}, 4, {"seq_len": 4096, "checkpointing": False, **_LOSS}),
    ("0.8.5", "llama-3.1-8b", 8, 2, {}, 4, {"seq_len": 4096, **_LOSS}),
    ("0.8.5", "llama-3.1-8b", 64, 3, {}, 2, {"seq_len": 8192, "checkpointing": False, **_LOSS}),
    ("0.8.5", "llama-3.1-8b", 64, 3, {}, 4, {"seq_len": 8192, **_LOSS}),
    ("0.4.1", "llama-3.2-1b", 2, 2, _STATES, 8, {"seq_len": 2048, "precision": "fp32", "checkpointing": False}),
    ("0.8.5", "mistral-7b", 8, 3, {}, 8, {"seq_len": 4096, "method": "lora", **_LOSS}),
    ("0.4.1", "mistral-7b", 8, 3, {}, 8, {"seq_len": 4096, "method": "lora", "checkpointing": False, **_LOSS}),
    ("0.4.1", "mistral-7b", 1, 0, {}, 8, {"seq_len": 4096, "method": "lora", "checkpointing": False, **_LOSS}),
    ("0.8.5", "qwen2.5-7b", 4, 2, {}, 2, {"seq_len": 4096, "method": "qlora", "checkpointing": False, **_LOSS}),
    ("0.8.5", "qwen2.5-7b", 4, 3, {}, 4, {"seq_len": 4096, "checkpointing": False, **_LOSS}),
    ("0.4.1", "qwen3-8b", 8, 2, {}, 4, {"seq_len": 4096, "checkpointing": False, **_LOSS}),
    ("0.8.5", "qwen3-8b", 8, 2, {}, 4, {"seq_len": 4096, "checkpointing": False, **_LOSS}),
    ("0.4.1", "qwen3-8b", 8, 3, {}, 4, {"seq_len": 4096, **_LOSS}),
    ("0.8.5", "qwen3-8b", 8, 3, {}, 4, {"seq_len": 4096, "method": "lora", **_LOSS}),
    ("0.8.5", "gemma-7b", 8, 3, {}, 4, {"seq_len": 4096, "checkpointing": False, **_LOSS}),
    ("0.8.5", "gemma-2-2b", 8, 2, {}, 2, {"seq_len": 4096, "checkpointing": False, **_LOSS}),
    ("0.8.5", "gemma-2-2b", 8, 3, {}, 2, {"seq_len": 4096, **_LOSS}),
    ("0.8.5", "gemma-3-4b", 8, 2, {}, 2, {"seq_len": 4096, "checkpointing": False, **_LOSS}),
    ("0.4.1", "gemma-3-4b", 8, 3, {}, 2, {"seq_len": 4096, **_LOSS}),
    ("0.4.1", "gemma-3-4b", 1, 0, {}, 4, {"seq_len": 4096, "method": "lora", "checkpointing": False, **_LOSS}),
    ("0.8.5", "gemma-3-1b", 8, 0, {}, 8, {"seq_len": 2048, "checkpointing": False}),
)


def with_liger() -> Iterator[Case]:
    """The rows above in bf16, with FlashAttention and checkpointing where nothing else is said."""
    for number, (release, model, gpus, stage, zero, sequences, more) in enumerate((*_ROWS, *_KERNELS)):
        rest = {**more}
        precision = rest.pop("precision", "bf16")
        config: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": sequences,
            "gradient_accumulation_steps": 1,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
            "zero_optimization": {"stage": stage, **zero},
            **({precision: {"enabled": True}} if precision != "fp32" else {}),
        }
        older = {"upcast": "loss", "shifted": False, "liger": release}
        own: dict[str, Any] = {"chunked_loss": True, "older_loss": older}
        if number >= len(_ROWS):
            own = {"liger_kernels": release}
        options = usual(**{"lora_rank": LORA_RANK, **own, **rest})
        name = f"{model} l{number + 1}"
        yield Case(name=name, model=model, depth=LIGER_DEPTH, gpus=gpus, config=config, options=options)
