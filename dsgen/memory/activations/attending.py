"""Attention from queries, keys and values to its output, fused or eager, as Hugging Face's functions have it."""

from __future__ import annotations

from typing import Any

from dsgen.memory.activations import operators as op
from dsgen.memory.activations.products import bmm, flash
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import GRADIENTS, Tape, Tensor

__all__ = ["FALCON", "GPT2", "LLAMA", "attend", "attend_alibi", "joined"]

# How the eager function treats scores: softmax in fp32 and a cast back, in the model's type, or that after `/=`.
LLAMA, GPT2, FALCON = "llama", "gpt2", "falcon"


def attend(
    tape: Tape,
    on: Setting,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    kv_heads: int = 0,
    heads_first: bool = False,
    style: str = LLAMA,
    drop: bool = False,
    cap: bool = False,
    sinks: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The output with a row for every token, and the weights that the eager function hands back.

    Args:
        tape: The tape.
        on: The setting.
        query: Queries of all heads.
        key: Keys.
        value: Values.
        kv_heads: Heads of keys and values; 0 for those of the model.
        heads_first: Queries and keys lie in memory head by head, and so does a fused kernel's output, which is copied
            before the output matrix.
        style: How scores become weights.
        drop: There is dropout on the weights.
        cap: Scores pass a tanh (Gemma 2).
        sinks: Every head has a learned score that takes weight and gives none (gpt-oss).
    """
    kv_heads = kv_heads or on.kv_heads
    if not on.eager:
        out = flash(tape, query, key, value, on.heads, kv_heads)
        return (op.clone(tape, out) if heads_first else out), None
    shared = kv_heads == 1 and on.heads > 1 and not heads_first
    late = shared and style == FALCON  # the product itself repeats them
    keys = _repeat(tape, on, key, kv_heads, shared)
    values = value if late else _repeat(tape, on, value, kv_heads, shared)
    copied = kv_heads == on.heads or shared
    first = query if heads_first else joined(tape, on, query)
    second = joined(tape, on, keys) if copied and not heads_first else keys
    weights = bmm(tape, first, second, (0, on.seq_len * on.heads), on.seq_len)
    del first, second
    weights = op.in_place(tape, weights) if style == FALCON else op.scaled(tape, weights)
    if cap:
        weights = op.scaled(tape, weights)
        weights = op.tanh(tape, weights)
        weights = op.scaled(tape, weights)
    mask = Tensor(on.rows, on.seq_len, on.item, None)
    if style == FALCON:
        weights = _masked_softmax(tape, weights, mask)
    else:
        weights = op.add(tape, weights, mask)
        if sinks:
            weights = _with_sinks(tape, on, weights)
        elif style == GPT2:
            weights = op.softmax(tape, weights)
            weights = op.cast(tape, weights, value.item)
        else:
            weights = _wide_softmax(tape, weights, value.item)
    if drop:
        weights = op.dropout(tape, weights, drop)
    values = _repeat(tape, on, values, kv_heads, shared) if late else values
    return _gathered(tape, on, weights, values, copied), weights


def joined(tape: Tape, on: Setting, tensor: Tensor) -> Tensor:
    """`reshape` to one matrix for each sequence and head: a copy, but of a single sequence, which is so already."""
    return tensor if on.single else op.clone(tape, tensor)


def _masked_softmax(tape: Tape, weights: Tensor, mask: Tensor) -> Tensor:
    masked = op.add(tape, weights, mask)
    return op.softmax(tape, masked)


def _wide_softmax(tape: Tape, weights: Tensor, item: int) -> Tensor:
    """`softmax(weights, dtype=torch.float32).to(query.dtype)`."""
    wide = op.cast(tape, weights, op.FP32)
    probabilities = op.softmax(tape, wide)
    del wide
    return op.cast(tape, probabilities, item)


def _gathered(tape: Tape, on: Setting, weights: Tensor, values: Tensor, copied: bool) -> Tensor:
    """Weights times values, and the heads of a token brought together in a copy."""
    given = joined(tape, on, values) if copied else values
    out = op.transposed(tape, bmm(tape, weights, given, on.rows, given.width))
    del given
    return op.clone(tape, out)


def _with_sinks(tape: Tape, on: Setting, weights: Tensor) -> Tensor:
    """GptOss' softmax: the sinks' column is joined, the largest score taken off, and the column dropped again."""
    rows, width, sinks = weights.rows, weights.width, on.weight(on.heads)
    size = sinks.width, sinks.item, GRADIENTS
    column = Tensor(rows, 1, sinks.item, None)  # a view of them for every row
    column = tape.node(column, (sinks.edge,), None, lambda *_: [tape.born((1, 0), *size)])
    joined = op.cat(tape, weights, column)
    del column
    largest, ids = op.picked(tape, joined, rows, 1, weights.item)
    del ids
    joined = op.sub(tape, joined, largest)
    del largest
    probabilities = op.softmax(tape, joined)
    return op.part(tape, probabilities, width)


def attend_alibi(tape: Tape, on: Setting, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """BloomAttention: positions are a bias of the scores (`alibi.baddbmm(query, key)`); never fused."""
    query, key, value = joined(tape, on, query), joined(tape, on, key), joined(tape, on, value)
    rows = (0, on.seq_len * on.heads)
    saved = tape.keep(query, key)
    scores = tape.born(rows, on.seq_len, query.item)
    inner, width, item = query.rows, query.width, query.item

    def run(*_: Any) -> list[Any]:
        found = []
        for _side in range(2):
            product = tape.born(inner, width, item)
            found.append(tape.born(inner, width, item))
            del product
        return found

    scores = tape.node(scores, (query.edge, key.edge), saved, run)
    masked = op.add(tape, scores, Tensor(on.rows, on.seq_len, on.item, None))
    wide = op.cast(tape, masked, op.FP32)
    probabilities = op.softmax(tape, wide)
    del wide
    weights = op.cast(tape, probabilities, item)
    del probabilities
    out = op.transposed(tape, bmm(tape, weights, value, on.rows, value.width))
    merged = op.clone(tape, out)
    del out, scores, masked, query, key
    return merged, weights


def _repeat(tape: Tape, on: Setting, tensor: Tensor, kv_heads: int, view: bool = False) -> Tensor:
    """`repeat_kv`: keys and values for every query head, a copy where there are fewer, or a `view` of a single one."""
    if kv_heads == on.heads:
        return tensor
    rows, width, item = tensor.rows, tensor.width, tensor.item
    whole = width // kv_heads * on.heads
    made = Tensor(rows, whole, item, tensor.storage) if view else tape.born(rows, whole, item)
    return tape.node(made, (tensor.edge,), None, lambda *_: [tape.born(rows, width, item)])  # type: ignore[no-any-return]
