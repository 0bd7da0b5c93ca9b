"""GLM-4, with a norm before and after each part of a block, and the mixture of experts GLM-4.5."""

from __future__ import annotations

import functools

from dsgen.families import peft, rows
from dsgen.families.config_keys import FLOORED, keys
from dsgen.families.family import UNKNOWN_STYLE, Family
from dsgen.families.orders import ATTENTION, FIRST, GATED, HEAD_NORMS, OUT, SECOND, SHARED, Order
from dsgen.families.parts import llama
from dsgen.families.parts.llama import project
from dsgen.families.parts.mixtures import routed, sigmoid_router
from dsgen.families.parts.rotary import rotate, rotated_part
from dsgen.families.reading import Rotated
from dsgen.families.tape import operators as op
from dsgen.families.tape.attending import attend
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Before
from dsgen.families.tape.norms import head_norm
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["GLM4", "GLM4_MOE"]

_HALF = Rotated(0.5)
_NORMED = (
    *rows.BIASED_QKV,
    *rows.norm("self_attn.q_norm", "head", when="qk_norm"),
    *rows.norm("self_attn.k_norm", "head", when="qk_norm"),
)


def _before(tape: Tape, on: Execution) -> Before:
    """Llama's, for half of a head; blocks make tables of their own of these."""
    hidden, tables, read, referred = llama.before(tape, on, part=2)
    return hidden, [], [*read, *tables], referred


@forward
def _paired_attention(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """Glm4Attention: half of every head is rotated, its neighbours as pairs."""
    project(my, tape, on, hidden, bias=on.model.attention_bias)
    my.query, my.key = _rotated(tape, on, my.query, my.key, on.model.head_size // 2)
    out, weights = attend(tape, on, my.query, my.key, my.value, heads_first=True)
    return on.linear(tape, out, on.hidden, "o_proj"), weights


@forward
def _rotated(my: Names, tape: Tape, on: Execution, query: Tensor, key: Tensor, rotary: int) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb, which repeats the elements of its tables for every block."""
    my.cosine, my.sine = (tape.make((on.seq_len, 0), rotary, on.item) for _ in range(2))
    first, rest = rotated_part(tape, query, on.heads * rotary)
    first_key, rest_key = rotated_part(tape, key, on.kv_heads * rotary)
    turned = rotate(tape, first, my.cosine, my.sine)
    turned_key = rotate(tape, first_key, my.cosine, my.sine)
    return op.cat(tape, turned, rest), op.cat(tape, turned_key, rest_key)


@forward
def _half_attention(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """Glm4MoeAttention: half of every head is rotated; a norm over every head where the config says so."""
    model = on.model
    rotary = model.head_size // 2
    project(my, tape, on, hidden, bias=model.attention_bias)
    if model.qk_norm:
        my.query = head_norm(tape, on, my.query, on.heads)
        my.key = head_norm(tape, on, my.key, on.kv_heads)
    query_turned, query_rest = rotated_part(tape, my.query, on.heads * rotary)
    key_turned, key_rest = rotated_part(tape, my.key, on.kv_heads * rotary)
    table = on.table(rotary)
    turned = rotate(tape, query_turned, table, table)
    turned_key = rotate(tape, key_turned, table, table)
    my.query, my.key = op.cat(tape, turned, query_rest), op.cat(tape, turned_key, key_rest)
    out, weights = attend(tape, on, my.query, my.key, my.value, heads_first=True)
    return on.linear(tape, out, on.hidden, "o_proj"), weights


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
    forward=llama.llama_forward(
        attending=_paired_attention, feeding=llama.paired_mlp, norms=llama.AROUND, before=_before
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
    forward=llama.llama_forward(
        attending=_half_attention,
        mixture=routed(sigmoid_router),
        before=functools.partial(llama.before, part=2),
    ),
    order=Order(
        dense=f"{FIRST} {ATTENTION} {HEAD_NORMS} {OUT} {SECOND} {GATED}",
        sparse=f"{FIRST} {ATTENTION} {HEAD_NORMS} {OUT} {SECOND} {SHARED}",
    ),
    autotp=UNKNOWN_STYLE,
    parts=peft.PARTS,
)
