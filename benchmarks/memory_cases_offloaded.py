"""Scenarios of activation offloading: what autograd keeps waits in the node's RAM while a pass runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memory_cases import Case, usual  # benchmarks/memory_cases.py, beside this script

__all__ = ["OFFLOADED_DEPTH", "with_offloading"]

OFFLOADED_DEPTH, LORA_RANK = 8, 16
_LOSS = {"chunked_loss": True}
_STATES = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
_LORA, _QLORA = {"method": "lora"}, {"method": "qlora"}

# (model, GPUs, stage, more of zero_optimization, sequences, forward passes, what else is not as usual)
_ROWS: tuple[tuple[str, int, int, dict[str, Any], int, int, dict[str, Any]], ...] = (
    ("llama-3.1-8b", 1, 0, {}, 1, 1, {"seq_len": 16384, **_LORA, **_LOSS}),
    ("llama-3.1-8b", 1, 0, {}, 2, 4, {"seq_len": 4096, **_LORA}),
    ("llama-3.1-8b", 1, 0, {}, 2, 1, {"seq_len": 8192, **_QLORA, **_LOSS}),
    ("llama-3.1-8b", 8, 3, {}, 1, 2, {"seq_len": 131072, **_LOSS}),
    ("llama-3.1-8b", 8, 3, {}, 1, 1, {"seq_len": 32768}),
    ("llama-3.1-8b", 8, 3, _STATES, 1, 1, {"seq_len": 65536, **_LOSS}),
    ("llama-3.1-8b", 8, 2, {}, 1, 1, {"seq_len": 65536, **_LOSS}),
    ("llama-3.1-8b", 8, 2, {}, 1, 2, {"seq_len": 32768, **_LOSS}),
    ("llama-3.1-8b", 8, 2, {}, 4, 1, {"seq_len": 8192}),
    ("llama-3.2-1b", 1, 0, {}, 1, 2, {"seq_len": 65536, **_LOSS}),
    ("llama-3.2-1b", 2, 2, _STATES, 4, 1, {"seq_len": 4096, "precision": "fp32"}),
    ("qwen2.5-7b", 4, 3, {}, 1, 1, {"seq_len": 65536, **_LOSS}),
    ("qwen2.5-7b", 4, 2, {}, 1, 1, {"seq_len": 32768, **_QLORA, **_LOSS}),
    ("qwen2.5-7b", 4, 2, {}, 1, 1, {"seq_len": 65536, **_LORA, **_LOSS}),
    ("qwen3-8b", 8, 3, {}, 1, 1, {"seq_len": 65536, **_LOSS}),
    ("mistral-7b", 2, 2, _STATES, 1, 1, {"seq_len": 32768}),
    ("mistral-7b", 8, 1, {}, 2, 2, {"seq_len": 16384, **_LOSS}),
    ("gemma-2-2b", 1, 0, {}, 1, 1, {"seq_len": 16384, **_LORA}),
    ("gemma-2-2b", 8, 2, {}, 2, 1, {"seq_len": 16384, **_LOSS}),
    ("mixtral-8x7b", 8, 2, {}, 1, 1, {"seq_len": 32768, **_LORA, **_LOSS}),
)


def with_offloading() -> Iterator[Case]:
    """The rows above in bf16, with FlashAttention and checkpointing."""
    for number, (model, gpus, stage, zero, sequences, passes, more) in enumerate(_ROWS, 1):
        rest = {**more}
        precision = rest.pop("precision", "bf16")
        config: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": sequences,
            "gradient_accumulation_steps": passes,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
            "zero_optimization": {"stage": stage, **zero},
            **({precision: {"enabled": True}} if precision != "fp32" else {}),
        }
        options = usual(**{"lora_rank": LORA_RANK, "activation_offloading": True, **rest})
        yield Case(
            name=f"{model} a{number}", model=model, depth=OFFLOADED_DEPTH, gpus=gpus, config=config, options=options
        )
