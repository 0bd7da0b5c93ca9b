"""Phi 1.5 and Phi-2: attention and feed-forward part side by side behind one LayerNorm, a head with a bias."""

from __future__ import annotations

import functools

from dsgen.families import rows
from dsgen.families.config_keys import HEADS, SPLIT, keys
from dsgen.families.family import AutoTP, Family
from dsgen.families.orders import ATTENTION, FIRST, Order
from dsgen.families.parts import gpts
from dsgen.families.parts.partial import partial_attention
from dsgen.families.reading import Rotated
from dsgen.families.tape import operators as op
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Before, Forward
from dsgen.families.tape.gelus import gelu_steps
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["PHI", "ROTARY"]

ROTARY = 32  # elements of a head that are rotated: partial_rotary_factor x head size of every Phi


def _before(tape: Tape, on: Execution) -> Before:
    return gpts.rotary(tape, on, ROTARY)


@forward
def _block(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """PhiDecoderLayer."""
    my.states = on.layer_norm(tape, hidden)
    attended, my.weights = partial_attention(tape, on, my.states, ROTARY, "dense", bias=True, out_bias=True)
    my.attended = op.dropout(tape, attended, on.model.dropout)
    out = on.linear(tape, my.states, on.ffn, "fc1", bias=True)
    out = gelu_steps(tape, out)
    out = on.linear(tape, out, on.hidden, "fc2", bias=True)
    my.out = op.dropout(tape, out, on.model.dropout)
    both = op.add(tape, my.attended, my.out)
    return op.add(tape, both, hidden)


PHI = Family(
    model_type="phi",
    huggingface="PhiForCausalLM",
    keys=keys(24, 2048, 32, HEADS, SPLIT, 8192, 51200, 2048, tied=False),
    gated=False,
    pinned={"qk_layernorm": False, "hidden_act": "gelu_new", "embd_pdrop": 0.0, "attention_dropout": 0.0},
    dropouts={"resid_pdrop": 0.0},
    rotated=Rotated(0.5, ROTARY),
    layout=rows.llama_frame(
        dense=(
            *rows.linear("self_attn.q_proj", "q", "hidden", "attention", bias=True),
            *rows.linear("self_attn.k_proj", "kv", "hidden", "attention", bias=True),
            *rows.linear("self_attn.v_proj", "kv", "hidden", "attention", bias=True),
            *rows.linear("self_attn.dense", "hidden", "q", "attention", bias=True),
            *rows.linear("mlp.fc1", "ffn", "hidden", "mlp", bias=True),
            *rows.linear("mlp.fc2", "hidden", "ffn", "mlp", bias=True),
            *rows.layer_norm("input_layernorm"),
        ),
        after=rows.layer_norm("model.final_layernorm"),
        head_bias=True,
    ),
    forward=Forward(_before, _block, _block, functools.partial(gpts.head, bias=True)),
    order=Order(
        dense=f"{FIRST} {ATTENTION} self_attn.dense mlp mlp.fc1 mlp.activation_fn mlp.fc2 resid_dropout",
        ahead="embed_tokens embed_dropout rotary_emb",
        asks="resid_dropout",
        parallel=("mlp.fc1",),
    ),
    autotp=AutoTP(head=True, tied_head=True, biased_rows=True),
)
