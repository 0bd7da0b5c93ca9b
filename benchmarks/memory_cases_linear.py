"""Scenarios without zero.Init's own linear layer: autograd keeps every weight that stage 3 has gathered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memory_cases import Case, usual  # benchmarks/memory_cases.py, beside this script

__all__ = ["LINEAR_DEPTH", "with_plain_linear"]

LINEAR_DEPTH, SEQ_LEN, LORA_RANK = 4, 512, 8
_PLAIN = {"stage": 3, "memory_efficient_linear": False}
_OFTEN = {  # what is gathered would go at once
    "stage3_max_live_parameters": 200_000_000,
    "stage3_max_reuse_distance": 0,
    "stage3_prefetch_bucket_size": 20_000_000,
}
_PARAMETERS = {"offload_param": {"device": "cpu", "pin_memory": True}}

# (model, GPUs, more of zero_optimization, what else is not as usual)
_ROWS: tuple[tuple[str, int, dict[str, Any], dict[str, Any]], ...] = (
    ("llama-2-7b", 8, {}, {"depth": 32, "seq_len": 4096}),
    ("llama-2-7b", 8, {}, {}),
    ("llama-2-7b", 8, _OFTEN, {}),
    ("llama-2-7b", 8, _OFTEN, {"passes": 2}),
    ("llama-2-7b", 8, _OFTEN, {"checkpointing": True}),
    ("llama-2-7b", 64, {}, {"precision": "fp16", "chunked_loss": True}),
    ("llama-2-7b", 8, _OFTEN, {"method": "lora"}),
    ("llama-2-7b", 8, {**_OFTEN, **_PARAMETERS}, {}),
    ("qwen2.5-1.5b", 4, _OFTEN, {}),
    ("qwen2.5-7b", 8, _OFTEN, {"depth": 12}),
    ("gemma-3-4b", 8, _OFTEN, {"depth": 12}),
    ("mistral-7b", 16, {"stage3_prefetch_bucket_size": 0}, {"depth": 12}),
    ("llama-2-7b", 1, {}, {}),
)


def with_plain_linear() -> Iterator[Case]:
    """The rows above, one sequence each in bf16, with FlashAttention, no checkpointing where nothing else is said."""
    for number, (model, gpus, zero, more) in enumerate(_ROWS):
        rest = {**more}
        precision, depth = rest.pop("precision", "bf16"), rest.pop("depth", LINEAR_DEPTH)
        config: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": rest.pop("passes", 1),
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
            precision: {"enabled": True},
            "zero_optimization": {**_PLAIN, **zero},
        }
        options = usual(**{"seq_len": SEQ_LEN, "lora_rank": LORA_RANK, "checkpointing": False, **rest})
        yield Case(name=f"{model} p{number + 1}", model=model, depth=depth, gpus=gpus, config=config, options=options)
