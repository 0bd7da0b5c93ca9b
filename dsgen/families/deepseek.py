"""DeepSeek-V2 and V3: queries, keys and values from low ranks (MLA), and experts beside shared ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from dsgen.families import peft, rows
from dsgen.families.config_keys import HEADS, keys
from dsgen.families.family import UNKNOWN_STYLE, Facts, Family
from dsgen.families.orders import FIRST, GATED, SECOND, SHARED, Order
from dsgen.families.parts import llama
from dsgen.families.parts.mixtures import picked, routed, sigmoid_router, wide_logits
from dsgen.families.parts.rotary import turned_pair
from dsgen.families.reading import Reader
from dsgen.families.tape import operators as op
from dsgen.families.tape.attending import attend
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Before
from dsgen.families.tape.norms import norm
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["DEEPSEEK_V2", "DEEPSEEK_V3"]

_NOPE = 128  # default of qk_nope_head_dim of DeepseekV2Config and DeepseekV3Config
_GROUPED = "group_limited_greedy"

_ATTENTION_ROWS = (
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
    dense=(*_ATTENTION_ROWS, *rows.gated_mlp(), *rows.TWO_NORMS),
    sparse=(
        *_ATTENTION_ROWS,
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
    read = _read_head(reader, facts)
    method = reader.part.get("topk_method")
    if method in (None, "greedy"):
        return {**read, "expert_groups": 0}
    if method != _GROUPED:
        raise reader.unsupported(f"topk_method is {method!r}", f"the class of deepseek_v2 knows greedy and {_GROUPED}")
    return {**read, "expert_groups": reader.integer("n_group", 1)}


def _write_groups(facts: Facts) -> dict[str, object]:
    groups = facts["expert_groups"]
    grouped = {"topk_method": _GROUPED, "n_group": groups, "topk_group": 1}
    return _write_head(facts) | (grouped if groups else {"topk_method": "greedy"})


_Turned = Callable[[Tape, Execution, Tensor, Tensor], tuple[Tensor, Tensor]]  # queries and keys, rotated


@forward
def _attention(
    my: Names, tape: Tape, on: Execution, hidden: Tensor, *, turned: _Turned
) -> tuple[Tensor, Tensor | None]:
    """DeepseekV2Attention and DeepseekV3Attention."""
    model = on.model
    rope = model.qk_rope_head_size
    plain, narrow = model.head_size - rope, model.v_head_size or model.head_size
    my.query = _query(tape, on, hidden)
    query_plain, my.query_turned = op.split(tape, my.query, on.heads * plain, on.heads * rope)
    width = model.kv_lora_rank + rope
    my.compressed = on.linear(tape, hidden, width, "kv_a_proj_with_mqa", bias=model.attention_bias)
    latent, my.key_turned = op.split(tape, my.compressed, model.kv_lora_rank, rope)
    my.latent = norm(tape, on, latent)
    my.query_turned, my.key_turned = turned(tape, on, my.query_turned, my.key_turned)
    my.joined = op.cat(tape, query_plain, my.query_turned)
    my.key, my.value = _expanded(tape, on, my.latent, my.key_turned, plain, narrow)
    if on.eager:
        out, weights = attend(tape, on, my.joined, my.key, my.value, kv_heads=on.heads, heads_first=True)
    else:
        out, weights = _padded(tape, on, my.joined, my.key, my.value, narrow)
    return on.linear(tape, out, on.hidden, "o_proj", bias=model.attention_bias), weights


def _query(tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    model = on.model
    width = on.heads * model.head_size
    if not model.q_lora_rank:
        return op.transposed(tape, on.linear(tape, hidden, width, "q_proj"))
    low = norm(tape, on, on.linear(tape, hidden, model.q_lora_rank, "q_a_proj", bias=model.attention_bias))
    return op.transposed(tape, on.linear(tape, low, width, "q_b_proj"))


def _turned(tape: Tape, on: Execution, tensor: Tensor) -> Tensor:
    """apply_rotary_pos_emb_interleave of one tensor: every second element is a half."""
    half = tensor.width // 2
    first, second = op.part(tape, tensor, half), op.part(tape, tensor, half)
    table = on.table(on.model.qk_rope_head_size)
    return turned_pair(tape, first, second, table, table)


def _turned_pairs(tape: Tape, on: Execution, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb_interleave."""
    turned = _turned(tape, on, query)
    return turned, _turned(tape, on, key)


@forward
def _turned_as_complex(my: Names, tape: Tape, on: Execution, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """apply_rotary_emb: pairs are complex numbers of two fp32, multiplied by a table of such."""
    table = on.table(on.model.qk_rope_head_size, op.FP32)
    my.query, my.key = op.cast(tape, query, op.FP32), op.cast(tape, key, op.FP32)
    turned = op.cast(tape, op.mul(tape, my.query, table), query.item)
    return turned, op.cast(tape, op.mul(tape, my.key, table), key.item)


def _expanded(
    tape: Tape, on: Execution, latent: Tensor, key_turned: Tensor, plain: int, narrow: int
) -> tuple[Tensor, Tensor]:
    """expand_kv: keys are written into an empty tensor part by part, which backward undoes part by part."""
    tokens, item, rope = latent.rows, latent.item, key_turned.width
    fused = op.transposed(tape, on.linear(tape, latent, on.heads * (plain + narrow), "kv_b_proj"))
    key_plain, value = op.split(tape, fused, on.heads * plain, on.heads * narrow)
    spread = Tensor(tokens, on.heads * rope, item, key_turned.storage)
    tape.node(spread, (key_turned,), None, lambda _: [tape.like(key_turned)])
    key = tape.make(tokens, on.heads * (plain + rope), item)
    first, second = key_plain.width, spread.width

    def undo_first(_: Tensor) -> list[Any]:
        whole, cut = tape.make(tokens, first + second, item), tape.make(tokens, first, item)
        tape.hold(whole)
        return [cut]

    def undo_second(_: Tensor) -> list[Any]:
        gradients = [tape.make(tokens, first + second, item), tape.make(tokens, second, item)]
        tape.make(tokens, second, item)
        return gradients

    tape.node(key, (key_plain,), None, undo_first)
    tape.node(key, (key, spread), None, undo_second)
    return key, value


@forward
def _padded(
    my: Names, tape: Tape, on: Execution, query: Tensor, key: Tensor, value: Tensor, narrow: int
) -> tuple[Tensor, Tensor | None]:
    """A fused kernel knows one head size: values are padded, and the output is cut."""
    size = on.model.head_size
    if narrow == size:
        return attend(tape, on, query, key, value, kv_heads=on.heads, heads_first=True)
    my.wide = tape.make(value.rows, on.heads * size, value.item)
    tape.node(my.wide, (value,), None, lambda _: [tape.like(value)])
    out, weights = attend(tape, on, query, key, my.wide, kv_heads=on.heads)
    return op.clone(tape, op.part(tape, out, value.width)), weights


@forward
def _router(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """DeepseekV2TopkRouter: in fp32; experts of groups that are not picked are masked."""
    logits = wide_logits(tape, on, hidden)
    my.scores = op.softmax(tape, logits)
    if on.model.expert_groups:
        my.scores = op.masked(tape, my.scores)
    values, ids = op.picked(tape, my.scores, picked(on), 1, op.FP32)
    return op.scaled(tape, values), ids, logits


def _complex_tables(tape: Tape, on: Execution) -> Before:
    """Llama's, but that blocks save one table, of complex numbers, which is made of its two."""
    hidden, tables, read, referred = llama.before(tape, on)
    complexes = tape.make((on.seq_len, 0), on.model.qk_rope_head_size, op.FP32)
    tape.hold(*tables)
    return hidden, [complexes], read, referred


_FORWARD_V2 = llama.llama_forward(
    attending=functools.partial(_attention, turned=_turned_as_complex),
    mixture=routed(_router),
    before=_complex_tables,
)
_FORWARD_V3 = llama.llama_forward(
    attending=functools.partial(_attention, turned=_turned_pairs),
    mixture=routed(sigmoid_router),
)


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
    forward=_FORWARD_V2,
    order=_ORDER,
    autotp=UNKNOWN_STYLE,
    parts=peft.PARTS,
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
    forward=_FORWARD_V3,
    order=_ORDER,
    autotp=UNKNOWN_STYLE,
    leaf_class="transformers.models.deepseek_v3.modeling_deepseek_v3.DeepseekV3MoE",
    parts=peft.PARTS,
)
