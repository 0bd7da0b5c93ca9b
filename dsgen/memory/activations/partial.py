"""Forward of models with LayerNorms that rotate a part of every head: sizes on a tape.

Source: transformers 5.23, models/{phi,stablelm}/modeling_*.py. Names are those of the classes.
"""

from __future__ import annotations

from dsgen.families.phi import ROTARY
from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import attend
from dsgen.memory.activations.gelus import gelu_steps
from dsgen.memory.activations.llama import mlp, rotate
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Names, Tape, Tensor, forward

__all__ = ["phi_block", "stablelm_block"]


@forward
def phi_block(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """PhiDecoderLayer."""
    my.states = on.layer_norm(tape, hidden)
    found, my.weights = _attention(tape, on, my.states, ROTARY, "dense", bias=True, out_bias=True)
    my.found = op.dropout(tape, found, on.model.dropout)
    out = on.linear(tape, my.states, on.ffn, "fc1", bias=True)
    out = gelu_steps(tape, out)
    out = on.linear(tape, out, on.hidden, "fc2", bias=True)
    my.out = op.dropout(tape, out, on.model.dropout)
    both = op.add(tape, my.found, my.out)
    return op.add(tape, both, hidden)


@forward
def stablelm_block(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """StableLmDecoderLayer, whose attention is not parallel; its names for what it has added last until its end."""
    model = on.model
    my.states = on.layer_norm(tape, hidden)
    my.found, my.weights = _attention(tape, on, my.states, model.head_size // 4, "o_proj", bias=model.attention_bias)
    residual = op.add(tape, hidden, my.found)
    out = mlp(tape, on, on.layer_norm(tape, residual))
    return op.add(tape, residual, out)


@forward
def _attention(
    my: Names, tape: Tape, on: Setting, hidden: Tensor, rotary: int, last: str, *, bias: bool, out_bias: bool = False
) -> tuple[Tensor, Tensor | None]:
    """PhiAttention and StableLmAttention.

    Args:
        my: Its names.
        tape: The tape.
        on: The setting.
        hidden: What goes in.
        rotary: Elements of a head that are rotated.
        last: Name of the output matrix.
        bias: Whether the first three matrices have biases.
        out_bias: Whether the output matrix has one.
    """
    size = on.model.head_size
    my.query = op.transposed(tape, on.linear(tape, hidden, on.heads * size, "q_proj", bias=bias))
    my.key = op.transposed(tape, on.linear(tape, hidden, on.kv_heads * size, "k_proj", bias=bias))
    my.value = on.linear(tape, hidden, on.kv_heads * size, "v_proj", bias=bias)
    if on.eager:
        my.value = op.transposed(tape, my.value)
    my.query_turned, my.query_rest = _cut(tape, my.query, on.heads, rotary)
    my.key_turned, my.key_rest = _cut(tape, my.key, on.kv_heads, rotary)
    table = on.table(rotary)
    my.query_turned, my.key_turned = (rotate(tape, one, table, table) for one in (my.query_turned, my.key_turned))
    my.query = op.cat(tape, my.query_turned, my.query_rest)
    my.key = op.cat(tape, my.key_turned, my.key_rest)
    out, weights = attend(tape, on, my.query, my.key, my.value, heads_first=True)
    return on.linear(tape, out, on.hidden, last, bias=out_bias), weights


def _cut(tape: Tape, tensor: Tensor, heads: int, rotary: int) -> tuple[Tensor, Tensor]:
    """The part of every head that is rotated, and the rest."""
    width = heads * rotary
    return op.part(tape, tensor, width), op.part(tape, tensor, tensor.width - width)
