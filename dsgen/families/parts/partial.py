"""Attention that rotates a part of every head, in front: sizes on a tape.

Source: transformers 5.23, models/{phi,stablelm}/modeling_*.py. Names are those of the classes.
"""

from __future__ import annotations

from dsgen.families.parts.llama import project
from dsgen.families.parts.rotary import rotate, rotated_part
from dsgen.families.tape import operators as op
from dsgen.families.tape.attending import attend
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["partial_attention"]


@forward
def partial_attention(
    my: Names, tape: Tape, on: Execution, hidden: Tensor, rotary: int, last: str, *, bias: bool, out_bias: bool = False
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
    project(my, tape, on, hidden, bias=bias)
    my.query_turned, my.query_rest = rotated_part(tape, my.query, on.heads * rotary)
    my.key_turned, my.key_rest = rotated_part(tape, my.key, on.kv_heads * rotary)
    table = on.table(rotary)
    my.query_turned, my.key_turned = (rotate(tape, one, table, table) for one in (my.query_turned, my.key_turned))
    my.query = op.cat(tape, my.query_turned, my.query_rest)
    my.key = op.cat(tape, my.key_turned, my.key_rest)
    out, weights = attend(tape, on, my.query, my.key, my.value, heads_first=True)
    return on.linear(tape, out, on.hidden, last, bias=out_bias), weights
