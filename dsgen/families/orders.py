"""The order in which modules run, as names: what recurs in the blocks of many models, and what is around blocks.

A family's own order stands in its file. What contains other modules comes before them. Source: the classes of
transformers 5.23 (models/*/modeling_*.py).
"""

from typing import NamedTuple

__all__ = [
    "ATTENTION",
    "BEHIND",
    "BEHIND_DECODER",
    "EMBEDDING",
    "FIRST",
    "GATED",
    "GPT2",
    "HEAD",
    "HEAD_NORMS",
    "LLAMA",
    "MEGATRON_MLP",
    "NORMED",
    "OUT",
    "SECOND",
    "SHARED",
    "Order",
]

ATTENTION = "self_attn self_attn.q_proj self_attn.k_proj self_attn.v_proj"
OUT = "self_attn.o_proj"
HEAD_NORMS = "self_attn.q_norm self_attn.k_norm"
NORMED = "self_attn self_attn.q_proj self_attn.q_norm self_attn.k_proj self_attn.k_norm self_attn.v_proj"
GATED = "mlp mlp.gate_proj mlp.act_fn mlp.up_proj mlp.down_proj"
SHARED = "mlp mlp.gate mlp.experts mlp.experts.act_fn mlp.shared_experts " + " ".join(
    f"mlp.shared_experts.{name}" for name in ("gate_proj", "act_fn", "up_proj", "down_proj")
)
MEGATRON_MLP = "mlp mlp.dense_h_to_4h {} mlp.dense_4h_to_h"
FIRST, SECOND = "input_layernorm", "post_attention_layernorm"
GPT2 = "ln_1 attn attn.c_attn attn.c_proj attn.resid_dropout ln_2 mlp mlp.c_fc mlp.act mlp.c_proj mlp.dropout"
LLAMA = f"{FIRST} {ATTENTION} {OUT} {SECOND} {GATED}"
EMBEDDING = "embed_tokens rotary_emb"
HEAD = "lm_head"
BEHIND_DECODER = f"final_layer_norm dropout {HEAD}"  # behind one that has an encoder
BEHIND = f"norm ln_f final_layer_norm final_layernorm project_out {HEAD}"


class Order(NamedTuple):
    """The modules of a model_type in the order in which they run, all that its class may have.

    Attributes:
        dense: Of a block with a plain feed-forward part.
        sparse: Of a block with experts.
        late: Of a dense block whose norms follow what they belong to, where a config chooses that (OPT).
        encoder: Of a block of the encoder.
        between: From the encoder's last block to the decoder's first.
        ahead: What runs before the blocks.
        asks: Where backward of a checkpointed block first asks for what was not saved: the block itself is empty; None
            is its last module with a tensor. With a dropout where a config chooses one, and with norms before.
        registered: The linear layer of attention that is registered first where another runs first, or that is asked
            for its type by name.
        parallel: The feed-forward part's matrices whose input is the block's, normalized.
    """

    dense: str = LLAMA
    sparse: str = ""
    late: str = ""
    encoder: str = ""
    between: str = ""
    ahead: str = EMBEDDING
    asks: str | None = None
    registered: str = ""
    parallel: tuple[str, ...] = ()
