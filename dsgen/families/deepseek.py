"""DeepSeek-V2 and V3: queries, keys and values from low ranks (MLA), and experts beside shared ones."""

from __future__ import annotations

from dsgen.families import experts, rows
from dsgen.families.family import UNKNOWN_STYLE, Facts, Family
from dsgen.families.keys import HEADS, keys
from dsgen.families.orders import FIRST, GATED, SECOND, SHARED, Order
from dsgen.families.reading import Reader

__all__ = ["DEEPSEEK_V2", "DEEPSEEK_V3"]

_NOPE = 128  # default of qk_nope_head_dim of DeepseekV2Config and DeepseekV3Config
_GROUPED = "group_limited_greedy"

_ATTENTION = (
    *rows.linear("self_attn.q_proj", "q", "hidden", "attention", when="plain_query"),
    *rows.linear("self_attn.q_a_proj", "q_rank", "hidden", "attention", bias_when="query_rank_bias", when="query_rank"),
    *rows.norm("self_attn.q_a_layernorm", "q_rank", when="query_rank"),
    *rows.linear("self_attn.q_b_proj", "q", "q_rank", "attention", when="query_rank"),
    *rows.linear("self_attn.kv_a_proj_with_mqa", "kv_rank_rope", "hidden", "attention", bias_when="attention_bias"),
    *rows.norm("self_attn.kv_a_layernorm", "kv_rank"),
    *rows.linear("self_attn.kv_b_proj", "kv_expanded", "kv_rank", "attention"),
    *rows.linear("self_attn.o_proj", "hidden", "v", "attention", bias_when="attention_bias"),
)
_LAYOUT = rows.llama_frame(
    dense=(*_ATTENTION, *rows.gated_mlp(), *rows.TWO_NORMS),
    sparse=(
        *_ATTENTION,
        *rows.EXPERTS,
        *rows.ROUTER,
        *rows.gated_mlp("mlp.shared_experts", "shared_ffn"),
        *rows.TWO_NORMS,
    ),
)
_LATENT = (
    "self_attn self_attn.q_proj self_attn.q_a_proj self_attn.q_a_layernorm self_attn.q_b_proj"
    " self_attn.kv_a_proj_with_mqa self_attn.kv_a_layernorm self_attn.kv_b_proj self_attn.o_proj"
)
_ORDER = Order(dense=f"{FIRST} {_LATENT} {SECOND} {GATED}", sparse=f"{FIRST} {_LATENT} {SECOND} {SHARED}")


def _read_head(reader: Reader, facts: Facts) -> dict[str, object]:
    """A head's plain part and its rotary one are apart."""
    nope = reader.integer("qk_nope_head_dim", 1) if reader.part.get("qk_nope_head_dim") is not None else _NOPE
    return {"head_size": nope + facts["qk_rope_head_size"]}


def _write_head(facts: Facts) -> dict[str, object]:
    return {
        "qk_nope_head_dim": facts["head_size"] - facts["qk_rope_head_size"],
        "q_lora_rank": facts["q_lora_rank"] or None,
        "v_head_dim": facts["v_head_size"] or facts["head_size"],
    }


def _read_groups(reader: Reader, facts: Facts) -> dict[str, object]:
    """How many groups of experts DeepseekV2TopkRouter picks from first."""
    found = _read_head(reader, facts)
    method = reader.part.get("topk_method")
    if method in (None, "greedy"):
        return {**found, "expert_groups": 0}
    if method != _GROUPED:
        raise reader.unsupported(f"topk_method is {method!r}", f"the class of deepseek_v2 knows greedy and {_GROUPED}")
    return {**found, "expert_groups": reader.integer("n_group", 1)}


def _write_groups(facts: Facts) -> dict[str, object]:
    groups = facts["expert_groups"]
    grouped = {"topk_method": _GROUPED, "n_group": groups, "topk_group": 1}
    return _write_head(facts) | (grouped if groups else {"topk_method": "greedy"})


DEEPSEEK_V2 = Family(
    model_type="deepseek_v2",
    huggingface="DeepseekV2ForCausalLM",
    keys=keys(
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
    read=_read_groups,
    write=_write_groups,
    layout=_LAYOUT,
    order=_ORDER,
    autotp=UNKNOWN_STYLE,
    parts=experts.PARTS,
)
DEEPSEEK_V3 = Family(
    model_type="deepseek_v3",
    huggingface="DeepseekV3ForCausalLM",
    keys=keys(
        *(61, 7168, 128, 128, 192, 18432, 129280, 4096),
        tied=False,
        names={"experts": ("n_routed_experts", "num_local_experts"), "head_size": ()},
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
    ),
    read=_read_head,
    write=_write_head,
    layout=_LAYOUT,
    order=_ORDER,
    autotp=UNKNOWN_STYLE,
    leaf_class="transformers.models.deepseek_v3.modeling_deepseek_v3.DeepseekV3MoE",
    parts=experts.PARTS,
)
