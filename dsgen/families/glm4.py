"""GLM-4, with a norm before and after each part of a block, and the mixture of experts GLM-4.5."""

from __future__ import annotations

from dsgen.families import experts, rows
from dsgen.families.family import UNKNOWN_STYLE, Family
from dsgen.families.keys import FLOORED, keys
from dsgen.families.orders import ATTENTION, FIRST, GATED, HEAD_NORMS, OUT, SECOND, SHARED, Order
from dsgen.families.reading import Rotated

__all__ = ["GLM4", "GLM4_MOE"]

_HALF = Rotated(0.5)
_NORMED = (
    *rows.BIASED_QKV,
    *rows.norm("self_attn.q_norm", "head", when="qk_norm"),
    *rows.norm("self_attn.k_norm", "head", when="qk_norm"),
)

GLM4 = Family(
    model_type="glm4",
    huggingface="Glm4ForCausalLM",
    keys=keys(40, 4096, 32, 2, 128, 13696, 151552, 131072, tied=False, attention_bias=True),
    rotated=_HALF,
    layout=rows.llama_frame(
        dense=(
            *rows.BIASED_QKV,
            *rows.linear("mlp.gate_up_proj", "ffn_pair", "hidden", "mlp"),
            *rows.linear("mlp.down_proj", "hidden", "ffn", "mlp"),
            *rows.TWO_NORMS,
            *rows.norm("post_self_attn_layernorm"),
            *rows.norm("post_mlp_layernorm"),
        )
    ),
    order=Order(
        dense=f"{FIRST} {ATTENTION} {OUT} post_self_attn_layernorm {SECOND}"
        " mlp mlp.gate_up_proj mlp.activation_fn mlp.down_proj post_mlp_layernorm"
    ),
    autotp=UNKNOWN_STYLE,
)
GLM4_MOE = Family(
    model_type="glm4_moe",
    huggingface="Glm4MoeForCausalLM",
    keys=keys(
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
    rotated=_HALF,
    layout=rows.llama_frame(
        dense=(*_NORMED, *rows.gated_mlp(), *rows.TWO_NORMS),
        sparse=(
            *_NORMED,
            *rows.EXPERTS,
            *rows.ROUTER,
            *rows.gated_mlp("mlp.shared_experts", "shared_ffn"),
            *rows.TWO_NORMS,
        ),
    ),
    order=Order(
        dense=f"{FIRST} {ATTENTION} {HEAD_NORMS} {OUT} {SECOND} {GATED}",
        sparse=f"{FIRST} {ATTENTION} {HEAD_NORMS} {OUT} {SECOND} {SHARED}",
    ),
    autotp=UNKNOWN_STYLE,
    parts=experts.PARTS,
)
