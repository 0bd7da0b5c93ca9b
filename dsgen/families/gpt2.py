"""GPT-2: learned positions, LayerNorms, and linear layers that are stored turned (Conv1D)."""

from __future__ import annotations

import functools

from dsgen.families import rows
from dsgen.families.config_keys import FOUR_H, GPT2_NAMES, HEADS, SPLIT, keys
from dsgen.families.family import AutoTP, Family, OlderLoss
from dsgen.families.orders import GPT2 as BLOCK
from dsgen.families.orders import Order
from dsgen.families.parts import gpts
from dsgen.families.tape import attending
from dsgen.families.tape import operators as op
from dsgen.families.tape.attending import attend
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Forward
from dsgen.families.tape.gelus import gelu_steps
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["GPT2"]


@forward
def _block(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """GPT2Block."""
    my.states = on.layer_norm(tape, hidden)
    my.attention, my.weights = _attention(tape, on, my.states)
    hidden = op.add(tape, my.attention, hidden)
    my.states = on.layer_norm(tape, hidden)
    out = _mlp(tape, on, my.states)
    return op.add(tape, hidden, out)


@forward
def _attention(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    width = on.heads * on.model.head_size
    fused = on.linear(tape, hidden, 3 * width, "c_attn", bias=True)
    my.query, my.key, my.value = op.split(tape, fused, width, width, width)
    if on.eager:
        my.query, my.key, my.value = (op.transposed(tape, one) for one in (my.query, my.key, my.value))
    out, weights = attend(tape, on, my.query, my.key, my.value, style=attending.GPT2, drop=True, apart=6)
    out = on.linear(tape, out, on.hidden, "c_proj", bias=True)
    return op.dropout(tape, out, True), weights


def _mlp(tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    states = on.linear(tape, hidden, on.ffn, "c_fc", bias=True)
    states = gelu_steps(tape, states)
    states = on.linear(tape, states, on.hidden, "c_proj", bias=True)
    return op.dropout(tape, states, True)


GPT2 = Family(
    model_type="gpt2",
    huggingface="GPT2LMHeadModel",
    hybrid=True,
    keys=keys(12, 768, 12, HEADS, SPLIT, FOUR_H, 50257, 1024, tied=True, names=GPT2_NAMES),
    gated=False,
    pinned={"add_cross_attention": False},
    layout=rows.TensorLayout(
        before=(
            *rows.embedding("transformer.wte.weight"),
            rows.TensorRow("transformer.wpe.weight", ("positions", "hidden"), "position"),
        ),
        block="transformer.h.*",
        dense=(
            *rows.layer_norm("ln_1"),
            *rows.conv1d("attn.c_attn", "hidden", "qkv", "attention"),
            *rows.conv1d("attn.c_proj", "q", "hidden", "attention"),
            *rows.layer_norm("ln_2"),
            *rows.conv1d("mlp.c_fc", "hidden", "ffn", "mlp"),
            *rows.conv1d("mlp.c_proj", "ffn", "hidden", "mlp"),
        ),
        after=rows.layer_norm("transformer.ln_f"),
    ),
    forward=Forward(functools.partial(gpts.learned, drop=True), _block, _block, gpts.head),
    order=Order(dense=BLOCK, ahead="wte wpe drop", asks="mlp.dropout"),
    direct=True,  # Conv1D multiplies by `addmm`
    transposed=True,
    older_loss=OlderLoss((4, 48), wide=False),
    autotp=AutoTP(refused="DeepSpeed refuses AutoTP for {}: no rule of its own says how to split it"),
)
