"""Mixtures of experts without a profile, each at a real width, and their runs beside those of memory_types.py."""

from __future__ import annotations

from typing import Any

__all__ = ["MIXTURES", "MORE_RUNS"]

# Name -> config.json, sorted; the name is the model_type, with what is special about a second entry behind it.
MIXTURES: dict[str, dict[str, Any]] = {
    # DeepSeek-V2-Lite.
    "deepseek_v2": {
        "model_type": "deepseek_v2",
        "first_k_dense_replace": 1,
        "hidden_size": 2048,
        "intermediate_size": 10944,
        "moe_intermediate_size": 1408,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_attention_heads": 16,
        "num_experts_per_tok": 6,
        "num_hidden_layers": 3,
        "q_lora_rank": None,
        "topk_method": "greedy",
        "vocab_size": 102400,
    },
    # DeepSeek-V2: queries of a low rank, and experts in groups.
    "deepseek_v2 grouped": {
        "model_type": "deepseek_v2",
        "first_k_dense_replace": 1,
        "hidden_size": 5120,
        "intermediate_size": 12288,
        "moe_intermediate_size": 1536,
        "n_group": 8,
        "n_routed_experts": 160,
        "n_shared_experts": 2,
        "num_attention_heads": 128,
        "num_experts_per_tok": 6,
        "num_hidden_layers": 3,
        "q_lora_rank": 1536,
        "topk_group": 3,
        "topk_method": "group_limited_greedy",
        "vocab_size": 102400,
    },
    # GLM-4.5-Air.
    "glm4_moe": {
        "model_type": "glm4_moe",
        "attention_bias": True,
        "first_k_dense_replace": 1,
        "head_dim": 128,
        "hidden_size": 4096,
        "intermediate_size": 10944,
        "moe_intermediate_size": 1408,
        "n_routed_experts": 128,
        "n_shared_experts": 1,
        "num_attention_heads": 96,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 3,
        "num_key_value_heads": 8,
        "vocab_size": 151552,
    },
    # GLM-4.6, with fewer experts: a norm over every head.
    "glm4_moe normed": {
        "model_type": "glm4_moe",
        "attention_bias": True,
        "first_k_dense_replace": 1,
        "head_dim": 128,
        "hidden_size": 5120,
        "intermediate_size": 12288,
        "moe_intermediate_size": 1536,
        "n_routed_experts": 32,
        "n_shared_experts": 1,
        "num_attention_heads": 96,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 3,
        "num_key_value_heads": 8,
        "use_qk_norm": True,
        "vocab_size": 151552,
    },
    # Granite 3.0 3B A800M.
    "granitemoe": {
        "model_type": "granitemoe",
        "hidden_size": 1536,
        "intermediate_size": 512,
        "num_attention_heads": 24,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 3,
        "num_key_value_heads": 8,
        "num_local_experts": 40,
        "tie_word_embeddings": True,
        "vocab_size": 49155,
    },
    # OLMoE 1B 7B.
    "olmoe": {
        "model_type": "olmoe",
        "hidden_size": 2048,
        "intermediate_size": 1024,
        "num_attention_heads": 16,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 3,
        "vocab_size": 50304,
    },
    # Qwen1.5-MoE-A2.7B.
    "qwen2_moe": {
        "model_type": "qwen2_moe",
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_attention_heads": 16,
        "num_hidden_layers": 3,
        "vocab_size": 151936,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
    },
    # Qwen2-57B-A14B: fewer key heads, a wide shared expert; and a first block without experts.
    "qwen2_moe wide": {
        "model_type": "qwen2_moe",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "mlp_only_layers": [0],
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "num_hidden_layers": 3,
        "vocab_size": 151936,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2560,
        "shared_expert_intermediate_size": 20480,
    },
}

_CPU = {"device": "cpu", "pin_memory": True}
_LIVE = {
    "stage3_max_live_parameters": 100_000_000,
    "stage3_max_reuse_distance": 100_000_000,
    "stage3_prefetch_bucket_size": 10_000_000,
}
_ZERO = "zero_optimization"
# The fields of a Run of memory_types.py, and what else its config has.
MORE_RUNS: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    (
        (16, "bf16", 2, 1, 512, "flash", True),
        {_ZERO: {"stage": 3, "offload_optimizer": _CPU, "reduce_bucket_size": 200_000_000}},
    ),
    ((256, "bf16", 1, 1, 512, "flash", True, "lora"), {_ZERO: {"stage": 3, "overlap_comm": True, **_LIVE}}),
    ((8, "fp16", 2, 1, 1024, "eager", True), {_ZERO: {"stage": 3, "overlap_comm": True}}),
    ((8, "bf16", 2, 1, 1024, "sdpa", False, "qlora"), {_ZERO: {"stage": 3}}),
    ((64, "bf16", 1, 2, 1024, "eager", False, "lora"), {_ZERO: {"stage": 3}}),
)
