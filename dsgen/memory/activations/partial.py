"""Forward of models with LayerNorms that rotate a part of every head: sizes on a tape.

Source: transformers 5.23, models/{phi,stablelm}/modeling_*.py. Local variables are those of the classes.
"""

from __future__ import annotations

from dsgen.families.phi import ROTARY
from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import attend
from dsgen.memory.activations.gelus import gelu_steps
from dsgen.memory.activations.llama import mlp, rotate
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Tape, Tensor

__all__ = ["phi_block", "stablelm_block"]


def phi_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """PhiDecoderLayer."""
    residual = hidden
    states = on.layer_norm(tape, hidden)
    found, weights = _attention(tape, on, states, ROTARY, "dense", bias=True, out_bias=True)
    found = op.dropout(tape, found, on.model.dropout)
    out = on.linear(tape, states, on.ffn, "fc1", bias=True)
    out = gelu_steps(tape, out)
    out = on.linear(tape, out, on.hidden, "fc2", bias=True)
    out = op.dropout(tape, out, on.model.dropout)
    both = op.add(tape, found, out)
    hidden = op.add(tape, both, residual)
    del both, found, weights, out
    return hidden


def stablelm_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """StableLmDecoderLayer, whose attention is not parallel; its names for what it has added last until its end."""
    model = on.model
    states = on.layer_norm(tape, hidden)
    found, weights = _attention(tape, on, states, model.head_size // 4, "o_proj", bias=model.attention_bias)
    residual = op.add(tape, hidden, found)
    out = mlp(tape, on, on.layer_norm(tape, residual))
    hidden = op.add(tape, residual, out)
    del states, found, weights, out
    return hidden


def _attention(
    tape: Tape, on: Setting, hidden: Tensor, rotary: int, last: str, *, bias: bool, out_bias: bool = False
) -> tuple[Tensor, Tensor | None]:
    """PhiAttention and StableLmAttention.

    Args:
        tape: The tape.
        on: The setting.
        hidden: What goes in.
        rotary: Elements of a head that are rotated.
        last: Name of the output matrix.
        bias: Whether the first three matrices have biases.
        out_bias: Whether the output matrix has one.
    """
    size = on.model.head_size
    query = op.transposed(tape, on.linear(tape, hidden, on.heads * size, "q_proj", bias=bias))
    key = op.transposed(tape, on.linear(tape, hidden, on.kv_heads * size, "k_proj", bias=bias))
    value = on.linear(tape, hidden, on.kv_heads * size, "v_proj", bias=bias)
    if on.eager:
        value = op.transposed(tape, value)
    query_turned, query_rest = _cut(tape, query, on.heads, rotary)
    key_turned, key_rest = _cut(tape, key, on.kv_heads, rotary)
    table = on.table(rotary)
    query_turned, key_turned = rotate(tape, query_turned, table, table), rotate(tape, key_turned, table, table)
    query = op.cat(tape, query_turned, query_rest)
    key = op.cat(tape, key_turned, key_rest)
    out, weights = attend(tape, on, query, key, value, heads_first=True)
    out = on.linear(tape, out, on.hidden, last, bias=out_bias)
    del query_turned, query_rest, key_turned, key_rest  # the classes' names for them last until here
    return out, weights


def _cut(tape: Tape, tensor: Tensor, heads: int, rotary: int) -> tuple[Tensor, Tensor]:
    """The part of every head that is rotated, and the rest."""
    width = heads * rotary
    return op.part(tape, tensor, width), op.part(tape, tensor, tensor.width - width)
