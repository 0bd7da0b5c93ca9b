"""Cohere's Command R and Aya 23: a LayerNorm without a bias for attention and feed-forward part alike."""

from __future__ import annotations

import functools

from dsgen.families import rows
from dsgen.families.config_keys import HEADS, SPLIT, keys
from dsgen.families.family import AutoTP, Family
from dsgen.families.orders import ATTENTION, FIRST, GATED, OUT, Order
from dsgen.families.parts import llama
from dsgen.families.parts.rotary import rotate
from dsgen.families.tape import operators as op
from dsgen.families.tape.attending import attend
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Forward
from dsgen.families.tape.norms import mean_square
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["COHERE"]


@forward
def _norm(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """CohereLayerNorm: no bias, in fp32 with the weight too, then back to the type."""
    my.states = op.cast(tape, hidden, op.FP32)
    my.mean = op.mean(tape, my.states)
    my.apart = op.sub(tape, my.states, my.mean)
    my.variance = mean_square(tape, my.apart)
    my.apart = op.sub(tape, my.states, my.mean)
    my.states = op.mul(tape, my.apart, op.rsqrt(tape, my.variance))
    my.apart = None
    kernel = op.cast(tape, on.weight(hidden.width), op.FP32)
    my.states = op.mul(tape, kernel, my.states)
    return op.cast(tape, my.states, hidden.item)


@forward
def _block(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """CohereDecoderLayer: attention and feed-forward share a norm."""
    my.states = _norm(tape, on, hidden)
    my.attention, my.weights = _attention(tape, on, my.states)
    out = llama.mlp(tape, on, my.states)
    both = op.add(tape, hidden, my.attention)
    return op.add(tape, both, out)


@forward
def _attention(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """CohereAttention: queries and keys are rotated in fp32."""
    size, bias = on.model.head_size, on.model.attention_bias
    my.query = on.linear(tape, hidden, on.heads * size, "q_proj", bias=bias)
    my.key = on.linear(tape, hidden, on.kv_heads * size, "k_proj", bias=bias)
    my.value = on.linear(tape, hidden, on.kv_heads * size, "v_proj", bias=bias)
    my.query, my.key = op.transposed(tape, my.query), op.transposed(tape, my.key)
    if on.eager:
        my.value = op.transposed(tape, my.value)
    my.query, my.key = _rotated(tape, on, my.query, my.key)
    out, weights = attend(tape, on, my.query, my.key, my.value)
    return on.linear(tape, out, on.hidden, "o_proj", bias=bias), weights


@forward
def _rotated(my: Names, tape: Tape, on: Execution, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb."""
    item, table = query.item, on.table(on.model.head_size)
    my.query, my.key = op.cast(tape, query, op.FP32), op.cast(tape, key, op.FP32)
    my.turned, my.turned_key = (rotate(tape, one, table, table) for one in (my.query, my.key))
    return op.cast(tape, my.turned, item), op.cast(tape, my.turned_key, item)


COHERE = Family(
    model_type="cohere",
    huggingface="CohereForCausalLM",
    keys=keys(40, 8192, 64, HEADS, SPLIT, 22528, 256000, 8192, tied=True, attention_bias=False),
    pinned={"use_qk_norm": False},
    layout=rows.llama_frame(
        dense=(*rows.attention(bias="attention_bias"), *rows.gated_mlp(), *rows.norm("input_layernorm"))
    ),
    forward=Forward(llama.before, _block, _block, functools.partial(llama.head, shaped=op.scaled), _norm),
    order=Order(dense=f"{FIRST} {ATTENTION} {OUT} {GATED}", parallel=("mlp.gate_proj", "mlp.up_proj")),
    autotp=AutoTP(head=True, tied_head=True),
)
