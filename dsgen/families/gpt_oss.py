"""gpt-oss: every block a mixture of experts, a learned sink for every head."""

from __future__ import annotations

from dsgen.families import experts, rows
from dsgen.families.family import AutoTP, Family
from dsgen.families.keys import LOCAL_EXPERTS, keys
from dsgen.families.orders import ATTENTION, FIRST, OUT, SECOND, Order
from dsgen.families.rows import Row

__all__ = ["GPT_OSS"]


GPT_OSS = Family(
    model_type="gpt_oss",
    huggingface="GptOssForCausalLM",
    keys=keys(
        *(36, 2880, 64, 8, 64, 2880, 201088, 131072),
        tied=False,
        names=LOCAL_EXPERTS,
        sliding_window=128,
        experts=128,
        experts_per_token=4,
    ),
    pinned={"attention_bias": True},
    read=experts.width,
    layout=rows.llama_frame(
        sparse=(
            Row("self_attn.sinks", ("heads",), "attention"),
            *rows.attention(qkv_bias=True, o_bias=True),
            Row("mlp.router.weight", ("experts", "hidden"), "router"),
            Row("mlp.router.bias", ("experts",), "router"),
            Row("mlp.experts.gate_up_proj", ("experts", "hidden", "expert_ffn_pair"), "expert"),
            Row("mlp.experts.gate_up_proj_bias", ("experts", "expert_ffn_pair"), "expert"),
            Row("mlp.experts.down_proj", ("experts", "expert_ffn", "hidden"), "expert"),
            Row("mlp.experts.down_proj_bias", ("experts", "hidden"), "expert"),
            *rows.TWO_NORMS,
        )
    ),
    order=Order(sparse=f"{FIRST} {ATTENTION} {OUT} {SECOND} mlp mlp.router mlp.experts"),
    kernels=("flash",),
    experts_as_stored=True,
    autotp=AutoTP(
        refused="AutoTP of {} splits the output head alone: attention and experts stay whole on every GPU", runs=True
    ),
)
