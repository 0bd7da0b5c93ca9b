"""How each model_type writes its facts in config.json: the names of the keys, and the class's default of each.

Source: the configuration class of each model_type in transformers 5.23.
"""

from __future__ import annotations

from dsgen.families.hf_encoders import ENCODER_DECODERS
from dsgen.families.hf_names import (
    BLOOM_NAMES,
    FALCON_NAMES,
    FLOORED,
    FOUR_H,
    GPT2_NAMES,
    HEADS,
    LOCAL_EXPERTS,
    NOPE_INTERVAL,
    PLAIN_HEADS,
    ROUTED_EXPERTS,
    SPLIT,
    Family,
    keys,
)

__all__ = ["FAMILIES"]

# ALiBi has no longest sequence; BLOOM was trained on 2048 tokens (arXiv 2211.05100, table 3).
_BLOOM_POSITIONS = 2048

_DECODERS: dict[str, Family] = {
    "bloom": Family(
        keys(2, 64, 8, HEADS, SPLIT, FOUR_H, 250880, _BLOOM_POSITIONS, tied=True, names={**PLAIN_HEADS, **BLOOM_NAMES}),
        gated=False,
    ),
    "cohere": Family(
        keys(40, 8192, 64, HEADS, SPLIT, 22528, 256000, 8192, tied=True, attention_bias=False),
        pinned={"use_qk_norm": False},
    ),
    "deepseek_v2": Family(
        keys(
            *(32, 4096, 32, HEADS, 192, 11008, 102400, 2048),
            tied=False,
            names={"experts": ("n_routed_experts", "num_experts"), "head_size": (), "expert_groups": ()},
            attention_bias=False,
            experts=64,
            experts_per_token=6,  # the class has none and then fails; every published model has 6
            expert_ffn_size=1407,
            shared_experts=2,
            expert_groups=0,
            dense_layers=0,
            q_lora_rank=1536,
            kv_lora_rank=512,
            qk_rope_head_size=64,
            v_head_size=128,
        ),
        pinned={"mlp_bias": False},
    ),
    "deepseek_v3": Family(
        keys(
            *(61, 7168, 128, 128, 192, 18432, 129280, 4096),
            tied=False,
            names=ROUTED_EXPERTS,
            attention_bias=False,
            experts=256,
            experts_per_token=8,
            expert_ffn_size=2048,
            shared_experts=1,
            dense_layers=3,
            q_lora_rank=1536,
            kv_lora_rank=512,
            qk_rope_head_size=64,
            v_head_size=128,
        )
    ),
    "falcon": Family(
        keys(32, 4544, 71, HEADS, SPLIT, FOUR_H, 65024, 2048, tied=True, names=FALCON_NAMES),
        gated=False,
        pinned={"parallel_attn": True, "bias": False},
    ),
    "gemma": Family(keys(28, 3072, 16, 16, 256, 24576, 256000, 8192, tied=True, attention_bias=False)),
    "gemma2": Family(
        keys(26, 2304, 8, 4, 256, 9216, 256000, 8192, tied=True, attention_bias=False, sliding_window=4096)
    ),
    "gemma3_text": Family(
        keys(26, 2304, 8, 4, 256, 9216, 262208, 131072, tied=True, attention_bias=False, sliding_window=4096)
    ),
    "glm4": Family(keys(40, 4096, 32, 2, 128, 13696, 151552, 131072, tied=False, attention_bias=True)),
    "glm4_moe": Family(
        keys(
            *(46, 4096, 96, 8, FLOORED, 10944, 151552, 131072),
            tied=False,
            names={"experts": ("n_routed_experts", "num_local_experts")},
            attention_bias=False,
            qk_norm=False,
            experts=128,
            experts_per_token=8,
            expert_ffn_size=1408,
            shared_experts=1,
            dense_layers=1,
        ),
        pinned={"norm_topk_prob": True},
    ),
    "gpt2": Family(
        keys(12, 768, 12, HEADS, SPLIT, FOUR_H, 50257, 1024, tied=True, names={**PLAIN_HEADS, **GPT2_NAMES}),
        gated=False,
        pinned={"add_cross_attention": False},
    ),
    "gpt_bigcode": Family(
        keys(12, 768, 12, 1, SPLIT, FOUR_H, 50257, 1024, tied=True, names={**PLAIN_HEADS, **GPT2_NAMES}),
        gated=False,
        pinned={"multi_query": True, "add_cross_attention": False},
        dropouts={"attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1},
    ),
    "gpt_neox": Family(
        keys(44, 6144, 64, HEADS, SPLIT, 24576, 50432, 2048, tied=False, names=PLAIN_HEADS),
        gated=False,
        pinned={"attention_bias": True},
    ),
    "gpt_oss": Family(
        keys(
            36,
            2880,
            64,
            8,
            64,
            2880,
            201088,
            131072,
            tied=False,
            names=LOCAL_EXPERTS,
            sliding_window=128,
            experts=128,
            experts_per_token=4,
        ),
        pinned={"attention_bias": True},
    ),
    "gptj": Family(
        keys(28, 4096, 16, HEADS, SPLIT, FOUR_H, 50400, 2048, tied=False, names={**PLAIN_HEADS, **GPT2_NAMES}),
        gated=False,
    ),
    "granite": Family(
        keys(32, 4096, 32, HEADS, SPLIT, 11008, 32000, 2048, tied=False, attention_bias=False, mlp_bias=False)
    ),
    "granitemoe": Family(
        keys(
            *(32, 4096, 32, HEADS, SPLIT, 11008, 32000, 2048),
            tied=False,
            names=LOCAL_EXPERTS,
            attention_bias=False,
            experts=8,
            experts_per_token=2,
        )
    ),
    "llama": Family(
        keys(32, 4096, 32, HEADS, SPLIT, 11008, 32000, 2048, tied=False, attention_bias=False, mlp_bias=False)
    ),
    "mistral": Family(keys(32, 4096, 32, 8, SPLIT, 14336, 32000, 131072, tied=False, sliding_window=4096)),
    "mixtral": Family(
        keys(
            32,
            4096,
            32,
            8,
            SPLIT,
            14336,
            32000,
            131072,
            tied=False,
            names=LOCAL_EXPERTS,
            sliding_window=0,
            experts=8,
            experts_per_token=2,
        )
    ),
    "olmo2": Family(keys(32, 4096, 32, HEADS, SPLIT, 11008, 50304, 2048, tied=False, attention_bias=False)),
    "olmoe": Family(
        keys(
            *(16, 2048, 16, HEADS, SPLIT, 2048, 50304, 4096),
            tied=False,
            names={"head_size": ()},
            attention_bias=False,
            experts=64,
            experts_per_token=8,
        ),
        pinned={"clip_qkv": None, "norm_topk_prob": False},
    ),
    "opt": Family(
        keys(
            12,
            768,
            12,
            HEADS,
            SPLIT,
            3072,
            50272,
            2048,
            tied=True,
            names={**PLAIN_HEADS, "ffn_size": ("ffn_dim",)},
            embedding_size=0,
        ),
        gated=False,
        pinned={"enable_bias": True, "layer_norm_elementwise_affine": True, "_remove_final_layer_norm": False},
    ),
    "phi": Family(
        keys(24, 2048, 32, HEADS, SPLIT, 8192, 51200, 2048, tied=False),
        gated=False,
        pinned={"qk_layernorm": False, "hidden_act": "gelu_new", "embd_pdrop": 0.0, "attention_dropout": 0.0},
        dropouts={"resid_pdrop": 0.0},
    ),
    "phi3": Family(
        keys(32, 3072, 32, HEADS, SPLIT, 8192, 32064, 4096, tied=False, sliding_window=0),
        pinned={"attention_bias": False, "mlp_bias": False, "lm_head_bias": False},
    ),
    "qwen2": Family(keys(32, 4096, 32, 32, SPLIT, 22016, 151936, 32768, tied=False, sliding_window=4096)),
    "qwen2_moe": Family(
        keys(
            *(24, 2048, 16, 16, SPLIT, 5632, 151936, 32768),
            tied=False,
            names={"shared_experts": ()},
            experts=60,
            experts_per_token=4,
            expert_ffn_size=1408,
            shared_experts=1,
            shared_ffn_size=5632,
        ),
        pinned={"decoder_sparse_step": 1, "norm_topk_prob": False, "qkv_bias": True, "use_sliding_window": False},
    ),
    "qwen3": Family(
        keys(32, 4096, 32, 32, 128, 22016, 151936, 32768, tied=False, attention_bias=False, sliding_window=4096)
    ),
    "qwen3_moe": Family(
        keys(
            24,
            2048,
            32,
            4,
            SPLIT,
            6144,
            151936,
            32768,
            tied=False,
            attention_bias=False,
            sliding_window=4096,
            experts=128,
            experts_per_token=8,
            expert_ffn_size=768,
        ),
        pinned={"decoder_sparse_step": 1},
    ),
    "smollm3": Family(
        keys(36, 2048, 16, 4, SPLIT, 11008, 128256, 32768, tied=True, attention_bias=False, mlp_bias=False),
        pinned={"no_rope_layer_interval": NOPE_INTERVAL, "use_sliding_window": False},
    ),
    "stablelm": Family(
        keys(
            32,
            2560,
            32,
            32,
            SPLIT,
            6912,
            50304,
            4096,
            tied=False,
            names={"head_size": (), "attention_bias": ("use_qkv_bias",)},
            attention_bias=False,
        ),
        pinned={
            "qk_layernorm": False,
            "use_parallel_residual": False,
            "hidden_dropout": 0.0,
            "attention_dropout": 0.0,
        },
    ),
    "starcoder2": Family(
        keys(
            *(30, 3072, 24, 2, SPLIT, 12288, 49152, 4096),
            tied=True,
            names={"attention_bias": ("use_bias",)},
            attention_bias=True,
            sliding_window=0,
        ),
        gated=False,
        pinned={"hidden_act": "gelu_pytorch_tanh"},
        dropouts={"attention_dropout": 0.0, "embedding_dropout": 0.0, "residual_dropout": 0.0},
    ),
}
FAMILIES: dict[str, Family] = dict(sorted({**_DECODERS, **ENCODER_DECODERS}.items()))
