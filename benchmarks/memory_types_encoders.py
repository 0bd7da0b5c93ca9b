"""Model types with an encoder, each at a real width, and the runs of each: what is counted of them by arithmetic."""

from __future__ import annotations

from typing import Any

__all__ = ["ENCODERS", "ENCODER_ADAPTERS", "ENCODER_RUNS", "TARGET_RUNS"]

# As TYPES of memory_types.py.
ENCODERS: dict[str, dict[str, Any]] = {
    # mT5 large, whose vocabulary is the largest part of it.
    "mt5": {
        "model_type": "mt5",
        "d_model": 1024,
        "d_kv": 64,
        "d_ff": 2816,
        "num_heads": 16,
        "num_layers": 3,
        "vocab_size": 250112,
    },
    # T5 3B: heads that are together four times as wide as what goes between the blocks.
    "t5": {
        "model_type": "t5",
        "d_model": 1024,
        "d_kv": 128,
        "d_ff": 16384,
        "num_heads": 32,
        "num_layers": 3,
        "vocab_size": 32128,
    },
    # T0 3B, T5 1.1 XL: a gate, and here more blocks in the decoder, and no dropout.
    "t5 gated": {
        "model_type": "t5",
        "d_model": 2048,
        "d_kv": 64,
        "d_ff": 5120,
        "num_heads": 32,
        "num_layers": 3,
        "num_decoder_layers": 4,
        "vocab_size": 32128,
        "feed_forward_proj": "gated-gelu",
        "dropout_rate": 0.0,
        "tie_word_embeddings": False,
    },
}

_CPU = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
_PARAMETERS = {"offload_param": {"device": "cpu", "pin_memory": True}}
_LIVE = {
    "stage3_max_live_parameters": 20_000_000,
    "stage3_max_reuse_distance": 20_000_000,
    "stage3_prefetch_bucket_size": 5_000_000,
    "stage3_param_persistence_threshold": 1000,
}
_SMALL = {"reduce_bucket_size": 5_000_000}


def _zero(stage: int, **more: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, **more}}


# As RUNS of memory_types.py, the fields of a Run.
ENCODER_RUNS: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((1, "bf16", 1, 1, 1024, "eager", False), _zero(0)),
    ((8, "bf16", 4, 1, 512, "flash", True), _zero(0)),
    ((8, "bf16", 2, 2, 1024, "eager", True), _zero(1, overlap_comm=True)),
    ((8, "bf16", 2, 3, 512, "eager", False), _zero(1, overlap_comm=True, **_CPU)),
    ((8, "bf16", 2, 1, 1024, "eager", False), _zero(2)),
    ((8, "bf16", 4, 2, 512, "flash", True), _zero(2, **_CPU)),
    ((8, "fp32", 1, 1, 1024, "eager", True), _zero(2, **_SMALL)),
    ((8, "bf16", 2, 1, 512, "eager", False), _zero(3)),
    ((8, "bf16", 2, 2, 1024, "eager", True), _zero(3, **_LIVE)),
    ((8, "fp16", 2, 1, 512, "eager", True), _zero(3, **_CPU, **_LIVE)),
    ((16, "fp16", 2, 2, 1024, "eager", True), _zero(1)),
    ((4, "fp16", 2, 1, 512, "eager", False), _zero(2, **_CPU)),
    ((8, "bf16", 2, 1, 512, "eager", True), _zero(3, **_CPU, **_PARAMETERS)),
    ((8, "fp16", 2, 2, 1024, "eager", False), _zero(3, **_CPU, **_PARAMETERS, **_LIVE)),
    ((4, "fp32", 1, 1, 512, "flash", True), _zero(3, **_PARAMETERS, **_SMALL)),
)

_ALL, _USUAL = ["all-linear"], ["q", "v"]  # the usual ones are those that peft takes if none is named

# The same with adapters, and the targets.
ENCODER_ADAPTERS: tuple[tuple[tuple[Any, ...], dict[str, Any], list[str]], ...] = (
    ((1, "bf16", 2, 1, 512, "eager", False, "lora"), _zero(0), _USUAL),
    ((8, "bf16", 2, 2, 1024, "eager", True, "lora"), _zero(1, overlap_comm=False), _ALL),
    ((8, "fp16", 2, 1, 1024, "eager", False, "lora"), _zero(2, **_CPU), _ALL),
    ((8, "fp32", 1, 1, 512, "flash", True, "lora"), _zero(2, **_SMALL), _USUAL),
    ((8, "bf16", 4, 1, 512, "eager", False, "lora"), _zero(2), ["o"]),
)

# The same with targets of another length.
TARGET_RUNS: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((1, "fp16", 4, 1, 512, "eager", False, "full", False, 4), _zero(2, **_CPU)),
    ((8, "bf16", 2, 2, 1024, "eager", True, "full", False, 128), _zero(2)),
    ((8, "bf16", 2, 1, 256, "eager", False, "full", False, 1024), _zero(3, **_LIVE)),
    ((8, "fp32", 1, 1, 512, "flash", True, "full", False, 768), _zero(3, **_CPU)),
    ((16, "fp16", 2, 3, 128, "eager", True, "full", False, 512), _zero(1, overlap_comm=True)),
)
