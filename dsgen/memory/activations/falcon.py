"""Forward of Falcon's block: sizes on a tape.

Source: transformers 5.23, models/falcon/modeling_falcon.py.
"""

from __future__ import annotations

from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import FALCON, attend
from dsgen.memory.activations.gpts import plain_mlp
from dsgen.memory.activations.llama import rotate
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Names, Tape, Tensor, forward

__all__ = ["falcon_block"]


@forward
def falcon_block(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """FalconDecoderLayer, with one norm (falcon-7b) or two (40b, 180b)."""
    my.attended = on.layer_norm(tape, hidden)
    my.fed = on.layer_norm(tape, hidden) if on.model.kv_heads > 1 else my.attended
    my.found, my.weights = _falcon_attention(tape, on, my.attended)
    out = plain_mlp(tape, on, my.fed, bias=False)
    out = op.in_place(tape, out, my.found)
    return op.add(tape, hidden, out)


@forward
def _falcon_attention(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    model = on.model
    size, several = model.head_size, model.kv_heads > 1
    fused = on.linear(tape, hidden, (on.heads + 2 * on.kv_heads) * size, "query_key_value")
    my.query = op.part(tape, fused, on.heads * size)
    my.key = op.index(tape, fused, fused.rows, on.kv_heads * size)
    my.value = op.index(tape, fused, fused.rows, on.kv_heads * size)
    kv_heads = on.kv_heads
    if several:
        kv_heads = on.heads
        query = op.clone(tape, my.query)
        my.query, my.key, my.value = query, _spread(tape, on, my.key), _spread(tape, on, my.value)
    if on.eager:
        my.query, my.key, my.value = (op.transposed(tape, one) for one in (my.query, my.key, my.value))
    table = on.table(size)
    my.query, my.key = (rotate(tape, one, table, table) for one in (my.query, my.key))
    out, weights = attend(tape, on, my.query, my.key, my.value, kv_heads=kv_heads, style=FALCON)
    tape.hold(fused)
    return on.linear(tape, out, on.hidden, "dense"), weights


def _spread(tape: Tape, on: Setting, tensor: Tensor) -> Tensor:
    """Keys or values written out for every query head; backward sums them."""
    made = tape.make(tensor.rows, on.heads * on.model.head_size, tensor.item)
    return tape.node(made, (tensor,), None, lambda _: [tape.like(tensor)])  # type: ignore[no-any-return]
