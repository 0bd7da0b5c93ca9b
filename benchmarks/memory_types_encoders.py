"""Model types with an encoder, each at a real width."""

from __future__ import annotations

from typing import Any

__all__ = ["ENCODERS"]

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
