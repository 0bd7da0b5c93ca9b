"""Phi-3, Phi-3.5 and Phi-4: Llama with one matrix for query, key and value, and one for gate and up."""

from __future__ import annotations

from dsgen.families import rows
from dsgen.families.config_keys import HEADS, SPLIT, keys
from dsgen.families.family import UNKNOWN_STYLE, Family
from dsgen.families.orders import FIRST, OUT, SECOND, Order
from dsgen.families.parts.llama import llama_forward, paired_mlp
from dsgen.families.parts.rotary import rotate
from dsgen.families.tape import operators as op
from dsgen.families.tape.attending import attend
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["PHI3"]


@forward
def _attention(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """Phi3Attention: one matrix; every head is put together from its rotated and its plain (here empty) part."""
    size = on.model.head_size
    fused = on.linear(tape, hidden, (on.heads + 2 * on.kv_heads) * size, "qkv_proj")
    my.query = op.transposed(tape, op.part(tape, fused, on.heads * size))
    my.key = op.transposed(tape, op.part(tape, fused, on.kv_heads * size))
    my.value = op.part(tape, fused, on.kv_heads * size)
    if on.eager:
        my.value = op.transposed(tape, my.value)
    table = on.table(size)
    rest, rest_key = op.part(tape, my.query, 0), op.part(tape, my.key, 0)
    query = op.cat(tape, rotate(tape, my.query, table, table), rest)
    my.key = op.cat(tape, rotate(tape, my.key, table, table), rest_key)
    my.query = query
    out, weights = attend(tape, on, my.query, my.key, my.value, heads_first=True)
    return on.linear(tape, out, on.hidden, "o_proj"), weights


PHI3 = Family(
    model_type="phi3",
    huggingface="Phi3ForCausalLM",
    keys=keys(32, 3072, 32, HEADS, SPLIT, 8192, 32064, 4096, tied=False, sliding_window=0),
    pinned={"attention_bias": False, "mlp_bias": False, "lm_head_bias": False},
    layout=rows.llama_frame(
        dense=(
            *rows.linear("self_attn.o_proj", "hidden", "q", "attention"),
            *rows.linear("self_attn.qkv_proj", "qkv", "hidden", "attention"),
            *rows.linear("mlp.gate_up_proj", "ffn_pair", "hidden", "mlp"),
            *rows.linear("mlp.down_proj", "hidden", "ffn", "mlp"),
            *rows.TWO_NORMS,
        )
    ),
    forward=llama_forward(attending=_attention, feeding=paired_mlp),
    order=Order(
        dense=f"{FIRST} self_attn self_attn.qkv_proj {OUT} resid_attn_dropout {SECOND}"
        " mlp mlp.gate_up_proj mlp.activation_fn mlp.down_proj resid_mlp_dropout",
        registered="o_proj",
    ),
    autotp=UNKNOWN_STYLE,
)
