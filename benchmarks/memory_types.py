"""Model types without a profile, each at a real width, and the runs that hold the instant memory model to them.

The runs go over stages, precisions, attention and what else changes memory. They are the same for every type, so a new
type is one entry of TYPES.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["RUNS", "TYPES", "Run"]

# Name -> config.json, sorted; the name is the model_type, with what is special about a second entry behind it.
TYPES: dict[str, dict[str, Any]] = {
    # Aya 23 8B.
    "cohere": {
        "model_type": "cohere",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 3,
        "vocab_size": 256000,
    },
    # As Command R has a key for every query, with biases and a head of its own.
    "cohere untied": {
        "model_type": "cohere",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_attention_heads": 32,
        "num_hidden_layers": 3,
        "vocab_size": 64000,
        "attention_bias": True,
        "tie_word_embeddings": False,
    },
    # GLM-4 9B with half its vocabulary.
    "glm4": {
        "model_type": "glm4",
        "hidden_size": 4096,
        "intermediate_size": 13696,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "num_hidden_layers": 3,
        "vocab_size": 75776,
    },
    # As GLM-4 32B has no biases, and tied.
    "glm4 tied": {
        "model_type": "glm4",
        "hidden_size": 2048,
        "head_dim": 64,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "num_hidden_layers": 3,
        "vocab_size": 50304,
        "attention_bias": False,
        "tie_word_embeddings": True,
    },
    # StarCoder's width, and a head of its own.
    "gpt_bigcode": {
        "model_type": "gpt_bigcode",
        "n_embd": 6144,
        "n_head": 48,
        "n_inner": 24576,
        "n_layer": 3,
        "n_positions": 8192,
        "vocab_size": 49152,
        "activation_function": "gelu",
        "tie_word_embeddings": False,
    },
    # SantaCoder's width, without a dropout.
    "gpt_bigcode tied": {
        "model_type": "gpt_bigcode",
        "n_embd": 2048,
        "n_head": 16,
        "n_inner": 8192,
        "n_layer": 4,
        "n_positions": 2048,
        "vocab_size": 49280,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
    },
    # Granite 3.1 2B: a vocabulary that is odd, and tied.
    "granite": {
        "model_type": "granite",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 4,
        "vocab_size": 49155,
        "attention_multiplier": 0.015625,
        "embedding_multiplier": 12.0,
        "logits_scaling": 8.0,
        "residual_multiplier": 0.22,
        "tie_word_embeddings": True,
    },
    # As wide as Granite 3.1 8B, with biases and a head of its own.
    "granite untied": {
        "model_type": "granite",
        "hidden_size": 4096,
        "intermediate_size": 12800,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 3,
        "vocab_size": 49152,
        "attention_bias": True,
        "mlp_bias": True,
    },
    # Ministral 3 8B with half its vocabulary.
    "ministral3": {
        "model_type": "ministral3",
        "hidden_size": 4096,
        "head_dim": 128,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 3,
        "vocab_size": 65536,
    },
    # Ministral 3 3B: heads that are wider than the residual stream, and tied.
    "ministral3 tied": {
        "model_type": "ministral3",
        "hidden_size": 3072,
        "head_dim": 128,
        "intermediate_size": 9216,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 4,
        "vocab_size": 131072,
        "tie_word_embeddings": True,
    },
    # OLMo 2 7B.
    "olmo2": {
        "model_type": "olmo2",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_attention_heads": 32,
        "num_hidden_layers": 3,
        "vocab_size": 100352,
    },
    # As OLMo 2 32B shares keys among queries, and tied.
    "olmo2 tied": {
        "model_type": "olmo2",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "num_hidden_layers": 3,
        "vocab_size": 100352,
        "attention_bias": True,
        "tie_word_embeddings": True,
    },
    # Phi-2: a head of 80, of which 32 are rotated, and a dropout.
    "phi": {
        "model_type": "phi",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_attention_heads": 32,
        "num_hidden_layers": 4,
        "partial_rotary_factor": 0.4,
        "resid_pdrop": 0.1,
        "vocab_size": 51200,
    },
    # Phi-1.5.
    "phi tied": {
        "model_type": "phi",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_hidden_layers": 3,
        "vocab_size": 51200,
        "tie_word_embeddings": True,
    },
    # SmolLM3 3B: the fourth block has no rope.
    "smollm3": {
        "model_type": "smollm3",
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "num_hidden_layers": 5,
        "vocab_size": 128256,
    },
    # The same with a head of its own; the last block has no rope.
    "smollm3 untied": {
        "model_type": "smollm3",
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_attention_heads": 24,
        "num_key_value_heads": 24,
        "num_hidden_layers": 4,
        "vocab_size": 49152,
        "tie_word_embeddings": False,
    },
    # StableLM 2 1.6B.
    "stablelm": {
        "model_type": "stablelm",
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_attention_heads": 32,
        "num_hidden_layers": 4,
        "vocab_size": 100352,
        "use_qkv_bias": True,
    },
    # As StableLM 2 12B shares keys among queries, and tied.
    "stablelm tied": {
        "model_type": "stablelm",
        "hidden_size": 5120,
        "intermediate_size": 13824,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 3,
        "vocab_size": 100352,
        "tie_word_embeddings": True,
    },
    # StarCoder2 3B.
    "starcoder2": {
        "model_type": "starcoder2",
        "hidden_size": 3072,
        "intermediate_size": 12288,
        "num_attention_heads": 24,
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
        "vocab_size": 49152,
        "sliding_window": 4096,
        "attention_dropout": 0.1,
        "embedding_dropout": 0.1,
        "residual_dropout": 0.1,
    },
    # StarCoder2 15B, without its dropout.
    "starcoder2 untied": {
        "model_type": "starcoder2",
        "hidden_size": 6144,
        "intermediate_size": 24576,
        "num_attention_heads": 48,
        "num_key_value_heads": 4,
        "num_hidden_layers": 3,
        "vocab_size": 49152,
        "sliding_window": 4096,
        "tie_word_embeddings": False,
    },
}

_CPU = {"device": "cpu", "pin_memory": True}
_LIVE = {
    "stage3_max_live_parameters": 100_000_000,
    "stage3_max_reuse_distance": 100_000_000,
    "stage3_prefetch_bucket_size": 10_000_000,
}


class Run(NamedTuple):
    """What a scenario asks beside the rest of its DeepSpeed config."""

    gpus: int
    precision: str
    micro_batch: int
    passes: int
    seq_len: int
    attention: str
    checkpointing: bool
    method: str = "full"
    chunked_loss: bool = False
    target_len: int | None = None


def _zero(stage: int, **more: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, **more}}


_TP = {"tensor_parallel": {"autotp_size": 2}}
RUNS: tuple[tuple[Run, dict[str, Any]], ...] = (
    (Run(1, "bf16", 1, 1, 2048, "flash", False), _zero(0)),
    (Run(8, "bf16", 2, 2, 1024, "sdpa", True), _zero(1)),
    (Run(8, "bf16", 2, 1, 1024, "eager", False), _zero(2)),
    (Run(8, "bf16", 2, 2, 2048, "flash", True), _zero(3)),
    (Run(16, "fp16", 2, 1, 512, "eager", False), _zero(3, overlap_comm=True, **_LIVE)),
    (Run(8, "fp32", 2, 1, 1024, "flash", True), _zero(2, offload_optimizer=_CPU)),
    (Run(8, "bf16", 2, 1, 1024, "flash", False), {**_zero(1), **_TP}),
    (Run(8, "bf16", 1, 2, 1024, "flash", True), {**_zero(2), **_TP}),
    (Run(8, "bf16", 1, 1, 2048, "flash", True, "lora"), _zero(3)),
    (Run(8, "bf16", 2, 1, 1024, "sdpa", False, "lora"), _zero(2)),
    (Run(8, "bf16", 2, 1, 1024, "eager", True), _zero(3, offload_optimizer=_CPU, offload_param=_CPU)),
    (Run(4, "bf16", 2, 2, 1024, "flash", False, "qlora"), _zero(2)),
    (Run(2, "bf16", 1, 1, 2048, "flash", False, chunked_loss=True), _zero(1)),
    (Run(8, "bf16", 2, 1, 1024, "flash", True), _zero(3, **_LIVE)),
)
