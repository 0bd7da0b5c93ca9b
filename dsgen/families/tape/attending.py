"""Attention from queries, keys and values to its output, fused or eager, as Hugging Face's functions have it."""

from __future__ import annotations

from typing import Any

from dsgen.families.tape import operators as op
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.graph import COPY, NORM, STREAM
from dsgen.families.tape.products import bmm, flash
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["FALCON", "GPT2", "LLAMA", "attend", "attend_alibi", "joined"]

# How the eager function treats scores: softmax in fp32 and a cast back, in the model's type, or that after `/=`.
LLAMA, GPT2, FALCON = "llama", "gpt2", "falcon"


@forward
def attend(
    my: Names,
    tape: Tape,
    on: Execution,
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
    apart: int = 2,
) -> tuple[Tensor, Tensor | None]:
    """The output with a row for every token, and the weights that the eager function hands back.

    Args:
        my: Its names.
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
        apart: Views that tell heads apart before a fused kernel: those of the values, unless the caller counts more.
    """
    kv_heads = kv_heads or on.kv_heads
    if on.masked:
        key, value = (_repeat(tape, on, one, kv_heads, view=kv_heads == 1) for one in (key, value))
        kv_heads = on.heads
    elif on.grouped and kv_heads < on.heads:
        return _by_math(my, tape, on, query, key, value, kv_heads, heads_first, drop), None
    if not on.eager:
        out = flash(tape, query, key, value, on.heads, kv_heads, apart, _bias(tape, on) if on.masked else None)
        return (op.clone(tape, out) if heads_first else out), None
    shared = kv_heads == 1 and on.heads > 1 and not heads_first
    late = shared and style == FALCON  # the product itself repeats them
    my.keys = _repeat(tape, on, key, kv_heads, shared)
    my.values = value if late else _repeat(tape, on, value, kv_heads, shared)
    copied = kv_heads == on.heads or shared
    first = query if heads_first else joined(tape, on, query)
    second = joined(tape, on, my.keys) if copied and not heads_first else my.keys
    size = query.width // on.heads
    shape = on.seq_len, on.seq_len, size
    my.weights = bmm(tape, first, second, (0, on.seq_len * on.heads), on.seq_len, on.heads, shape)
    my.weights = op.in_place(tape, my.weights) if style == FALCON else op.scaled(tape, my.weights)
    if cap:
        my.weights = op.scaled(tape, my.weights)
        my.weights = op.tanh(tape, my.weights)
        my.weights = op.scaled(tape, my.weights)
    mask = Tensor(on.rows, on.seq_len, on.item, None)
    if style == FALCON:
        my.weights = op.softmax(tape, op.add(tape, my.weights, mask))
    else:
        my.weights = op.add(tape, my.weights, mask)
        if sinks:
            my.weights = _with_sinks(tape, on, my.weights)
        elif style == GPT2:
            my.weights = op.softmax(tape, my.weights)
            my.weights = op.cast(tape, my.weights, value.item)
        else:  # softmax(weights, dtype=torch.float32).to(query.dtype)
            my.weights = op.cast(tape, op.softmax(tape, op.cast(tape, my.weights, op.FP32)), value.item)
    if drop:
        my.weights = op.dropout(tape, my.weights, drop)
    if late:
        my.values = _repeat(tape, on, my.values, kv_heads, shared)
    return _gathered(tape, on, my.weights, my.values, copied), my.weights


def _by_math(
    my: Names,
    tape: Tape,
    on: Execution,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kv_heads: int,
    heads_first: bool,
    drop: bool,
) -> Tensor:
    """torch's sdpa without a fused kernel: all of it in fp32, keys and values repeated, and a mask of what is ahead
    made anew (attention.cpp, _scaled_dot_product_attention_math)."""
    size = query.width // on.heads
    my.query, my.key, my.value = (op.cast(tape, one, op.FP32) for one in (query, key, value))
    my.scaled = op.scaled(tape, my.query)
    my.ahead = _ahead(tape, on)
    my.keys, my.values = (_repeat(tape, on, one, kv_heads) for one in (my.key, my.value))
    my.turned = op.scaled(tape, my.keys)
    my.first = my.scaled if heads_first else joined(tape, on, my.scaled)
    shape = on.seq_len, on.seq_len, size
    my.scores = bmm(tape, my.first, my.turned, (0, on.seq_len * on.heads), on.seq_len, on.heads, shape)
    my.scores = op.add(tape, my.scores, my.ahead)
    my.scores = op.dropout(tape, op.safe_softmax(tape, my.scores), drop)
    tape.moves(STREAM, my.scores, Tensor(my.scores.rows, my.scores.width, value.item, None))  # handed back in its type
    shape = on.seq_len, size, on.seq_len
    my.out = bmm(tape, my.scores, my.values, on.rows, on.heads * size, on.heads, shape)
    my.out = op.cast(tape, my.out, value.item)
    return op.clone(tape, op.transposed(tape, my.out))


def _ahead(tape: Tape, on: Execution) -> Tensor:
    """What a token may not see, as numbers to add; the same of every sequence."""
    made = [tape.make((on.seq_len, 0), on.seq_len, item) for item in (op.MASK, op.MASK, op.FP32)]
    tape.moves(COPY, made[0])
    tape.moves(STREAM, *made[:2])
    tape.moves(STREAM, *made[1:])
    tape.dispatches(operators=2)
    return made[-1]


def _bias(tape: Tape, on: Execution) -> Tensor:
    """The mask as numbers to add, which torch makes of it in each call (convert_boolean_attn_mask)."""
    mask = Tensor(on.rows, on.seq_len, op.MASK, None)
    turned = tape.like(mask)
    tape.moves(STREAM, mask, turned)
    bias = tape.make(on.rows, on.seq_len, on.item)
    tape.moves(STREAM, turned, bias)
    tape.dispatches(views=1)
    return bias


def joined(tape: Tape, on: Execution, tensor: Tensor) -> Tensor:
    """`reshape` to one matrix for each sequence and head: a copy, but of a single sequence, which is so already."""
    return tensor if on.single else op.clone(tape, tensor)


def _gathered(tape: Tape, on: Execution, weights: Tensor, values: Tensor, copied: bool) -> Tensor:
    """Weights times values, and the heads of a token brought together in a copy."""
    given = joined(tape, on, values) if copied else values
    shape = on.seq_len, given.width // on.heads, on.seq_len
    return op.clone(tape, op.transposed(tape, bmm(tape, weights, given, on.rows, given.width, on.heads, shape)))


def _with_sinks(tape: Tape, on: Execution, weights: Tensor) -> Tensor:
    """GptOss' softmax: the sinks' column is joined, the largest score taken off, and the column dropped again."""
    rows, width, sinks = weights.rows, weights.width, on.weight(on.heads)
    column = Tensor(rows, 1, sinks.item, None)  # a view of them for every row
    tape.dispatches(views=2)

    def back(gradient: Tensor) -> list[Any]:
        result = op.gradient_of(tape, sinks)
        tape.moves(NORM, gradient, result)
        return [result]

    tape.node(column, (sinks,), None, back)
    scores = op.cat(tape, weights, column)
    largest, _ = op.picked(tape, scores, rows, 1, weights.item)
    return op.part(tape, op.softmax(tape, op.sub(tape, scores, largest)), width)


@forward
def attend_alibi(
    my: Names, tape: Tape, on: Execution, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor]:
    """BloomAttention: positions are a bias of the scores (`alibi.baddbmm(query, key)`); never fused."""
    my.query, my.key, my.value = (joined(tape, on, one) for one in (query, key, value))
    saved = tape.keep(my.query, my.key)
    my.scores = tape.make((0, on.seq_len * on.heads), on.seq_len, query.item)
    inner, tokens, size = my.query, on.seq_len, query.width // on.heads
    batch, item = (0, on.heads), query.item
    tape.multiplies((tokens, 0), (tokens, 0), (size, 0), item, batch=batch, views=4)

    def back(_: Tensor) -> list[Any]:
        gradients = []
        for shape in ((tokens, size, tokens), (size, tokens, tokens)):  # keys lie turned
            product = tape.like(inner)
            m, n, k = ((length, 0) for length in shape)
            tape.multiplies(m, n, k, item, batch=batch, views=2)
            gradients.append(tape.like(inner))
            tape.moves(STREAM, product, gradients[-1])  # times the scale
            tape.hold(product)
        return gradients

    tape.node(my.scores, (my.query, my.key), saved, back)
    my.masked = op.add(tape, my.scores, Tensor(on.rows, on.seq_len, on.item, None))
    weights = op.cast(tape, op.softmax(tape, op.cast(tape, my.masked, op.FP32)), query.item)
    shape = tokens, size, tokens
    out = op.transposed(tape, bmm(tape, weights, my.value, on.rows, my.value.width, on.heads, shape))
    return op.clone(tape, out), weights


def _repeat(tape: Tape, on: Execution, tensor: Tensor, kv_heads: int, view: bool = False) -> Tensor:
    """`repeat_kv`: keys and values for every query head, a copy where there are fewer, or a `view` of a single one."""
    if kv_heads == on.heads:
        return tensor
    whole = tensor.width // kv_heads * on.heads
    rows, item = tensor.rows, tensor.item
    made = Tensor(rows, whole, item, tensor.storage) if view else tape.make(rows, whole, item)
    tape.dispatches(views=3)
    if not view:
        tape.moves(COPY, tensor, made)

    def back(gradient: Tensor) -> list[Any]:
        result = tape.like(tensor)
        tape.dispatches(views=2)
        tape.moves(NORM, gradient, result)
        return [result]

    return tape.node(made, (tensor,), None, back)  # type: ignore[no-any-return]
