"""Forward of Falcon's block: sizes on a tape.

Source: transformers 5.23, models/falcon/modeling_falcon.py.
"""

from __future__ import annotations

from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import FALCON, attend
from dsgen.memory.activations.gpts import plain_mlp
from dsgen.memory.activations.llama import rotate
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Tape, Tensor

__all__ = ["falcon_block"]


def falcon_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """FalconDecoderLayer, with one norm (falcon-7b) or two (40b, 180b)."""
    residual = hidden
    attended = on.layer_norm(tape, hidden)
    fed = on.layer_norm(tape, hidden) if on.model.kv_heads > 1 else attended
    found, weights = _falcon_attention(tape, on, attended)
    out = plain_mlp(tape, on, fed, bias=False)
    out = op.in_place(tape, out, found)
    hidden = op.add(tape, residual, out)
    del out, found, weights, attended, fed
    return hidden


def _falcon_attention(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    model = on.model
    size, several = model.head_size, model.kv_heads > 1
    fused = on.linear(tape, hidden, (on.heads + 2 * on.kv_heads) * size, "query_key_value")
    query = op.part(tape, fused, on.heads * size)
    key = op.index(tape, fused, fused.rows, on.kv_heads * size)
    value = op.index(tape, fused, fused.rows, on.kv_heads * size)
    kv_heads = on.kv_heads
    if several:
        kv_heads = on.heads
        query, key, value = op.clone(tape, query), _spread(tape, on, key), _spread(tape, on, value)
    if on.eager:
        query, key, value = (op.transposed(tape, one) for one in (query, key, value))
    table = on.table(size)
    rotated, rotated_key = rotate(tape, query, table, table), rotate(tape, key, table, table)
    query, key = rotated, rotated_key
    del rotated, rotated_key
    out, weights = attend(tape, on, query, key, value, kv_heads=kv_heads, style=FALCON)
    del fused
    return on.linear(tape, out, on.hidden, "dense"), weights


def _spread(tape: Tape, on: Setting, tensor: Tensor) -> Tensor:
    """Keys or values written out for every query head; backward sums them."""
    rows, width, item = tensor.rows, tensor.width, tensor.item
    made = tape.born(rows, on.heads * on.model.head_size, item)
    return tape.node(made, (tensor.edge,), None, lambda *_: [tape.born(rows, width, item)])  # type: ignore[no-any-return]
