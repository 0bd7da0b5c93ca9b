"""IBM's Granite, which scales what each part of a block adds, and its mixture of experts."""

from __future__ import annotations

from dsgen.families import experts, rows
from dsgen.families.family import UNKNOWN_STYLE, AutoTP, Family
from dsgen.families.keys import HEADS, LOCAL_EXPERTS, SPLIT, keys
from dsgen.families.llama import BLOCK
from dsgen.families.orders import ATTENTION, FIRST, OUT, SECOND, Order
from dsgen.families.rows import Row

__all__ = ["GRANITE", "GRANITEMOE"]


GRANITE = Family(
    model_type="granite",
    huggingface="GraniteForCausalLM",
    keys=keys(32, 4096, 32, HEADS, SPLIT, 11008, 32000, 2048, tied=False, attention_bias=False, mlp_bias=False),
    layout=rows.llama_frame(dense=BLOCK),
    autotp=AutoTP(head=True, tied_head=True),
)
GRANITEMOE = Family(
    model_type="granitemoe",
    huggingface="GraniteMoeForCausalLM",
    keys=keys(
        *(32, 4096, 32, HEADS, SPLIT, 11008, 32000, 2048),
        tied=False,
        names=LOCAL_EXPERTS,
        attention_bias=False,
        experts=8,
        experts_per_token=2,
    ),
    read=experts.width,
    layout=rows.llama_frame(
        sparse=(
            *rows.attention(bias="attention_bias"),
            *rows.TWO_NORMS,
            Row("block_sparse_moe.router.weight", ("experts", "hidden"), "router"),
            Row("block_sparse_moe.experts.gate_up_proj", ("experts", "expert_ffn_pair", "hidden"), "expert"),
            Row("block_sparse_moe.experts.down_proj", ("experts", "hidden", "expert_ffn"), "expert"),
        )
    ),
    order=Order(
        sparse=f"{FIRST} {ATTENTION} {OUT} {SECOND} block_sparse_moe block_sparse_moe.router"
        " block_sparse_moe.experts block_sparse_moe.experts.act_fn"
    ),
    autotp=UNKNOWN_STYLE,
)
