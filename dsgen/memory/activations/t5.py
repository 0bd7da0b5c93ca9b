"""Forward of T5 and mT5, whose decoder attends to what an encoder has made: sizes on a tape.

Source: transformers 5.23, models/{t5,mt5}/modeling_*.py. Names are those of the classes.

A table of biases, one for each distance between two tokens, is looked up in the first block of a stack, and its scores
are added to those of all its blocks. So a block reads what is counted elsewhere, and adds to gradients that the blocks
behind it have made: those of the biases, and in the decoder those of the encoder's output.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dsgen.families.parameters import ALL_LINEAR
from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import joined
from dsgen.memory.activations.gelus import gelu_steps
from dsgen.memory.activations.moments import Size
from dsgen.memory.activations.products import bmm, cross_entropy
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Names, Node, Tape, Tensor, forward

__all__ = ["Place", "before", "between", "block", "head", "saves_encoded"]

SCALED = "t5"  # the decoder's output is scaled before the head, where there is no gate


class Place(NamedTuple):
    """Which block it is.

    Attributes:
        decodes: It is one of the decoder.
        first: It is the first of its stack, and makes what the others add to their scores.
        last: It is the last: its backward is the first to make gradients of what all of them read.
        again: It runs again in backward, and the plain bias of the cross-attention asks for a gradient.
    """

    decodes: bool
    first: bool
    last: bool
    again: bool


def biases(on: Setting) -> Size:
    """Rows of a bias for every head and pair of tokens, one of all sequences; `width` is that of the other tokens."""
    rows = on.heads * on.seq_len
    return (0, rows) if on.single else (rows, 0)


def before(tape: Tape, on: Setting) -> tuple[Tensor, Tensor]:
    """The encoder's embedding, with its dropout and without."""
    model = on.model
    embedded = op.embedding(tape, on.rows, on.outer(model.vocab_size * on.hidden), on.hidden)
    on.ask(tape, embedded)
    return op.dropout(tape, embedded, model.dropout), embedded


@forward
def block(my: Names, tape: Tape, on: Setting, hidden: Tensor, place: Place) -> Tensor:
    """T5Block."""
    my.hidden, my.bias, my.weights = _self_attention(tape, on, hidden, place)
    my.hidden = _clamped(tape, on, my.hidden)
    if place.decodes:
        my.hidden, my.plain, my.weights = _cross_attention(tape, on, my.hidden, place)
        my.hidden = _clamped(tape, on, my.hidden)
    my.hidden = _feed_forward(tape, on, my.hidden)
    return _clamped(tape, on, my.hidden)


def _norm(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """T5LayerNorm: no mean is taken off; only the variance is made in fp32."""
    width, item = hidden.width, hidden.item
    variance = op.mean(tape, op.power(tape, op.cast(tape, hidden, op.FP32)))
    hidden = op.mul(tape, hidden, op.rsqrt(tape, variance))
    hidden = op.cast(tape, hidden, item)
    made = op.mul(tape, on.weight(width), hidden)
    tape.hold(variance)
    return made


def _clamped(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """`torch.clamp(hidden, min=-value, max=value)` of tensors, the value by whether anything is infinite."""
    if not on.clamps:
        return hidden
    tape.like(hidden)  # whether anything is infinite: of each number, and whether it is
    tape.like(hidden, op.MASK)
    saved = tape.keep(hidden)

    def back(gradient: Tensor) -> list[Any]:
        inside = [tape.like(gradient, op.MASK) for _ in ("above", "below", "both")]
        made = tape.like(gradient)
        tape.hold(*inside)
        return [made]

    return tape.node(tape.like(hidden), (hidden,), saved, back)  # type: ignore[no-any-return]


@forward
def _self_attention(my: Names, tape: Tape, on: Setting, hidden: Tensor, place: Place) -> tuple[Tensor, Tensor, Tensor]:
    my.normed = _norm(tape, on, hidden)
    my.found, bias, weights = _attention(tape, on, my.normed, my.normed, place, False)
    dropped = op.dropout(tape, my.found, on.model.dropout)
    return op.add(tape, hidden, dropped), bias, weights


@forward
def _cross_attention(my: Names, tape: Tape, on: Setting, hidden: Tensor, place: Place) -> tuple[Tensor, Tensor, Tensor]:
    my.normed = _norm(tape, on, hidden)
    encoded = _read(tape, (0, on.source_len), on.hidden, on.item, 1, place)
    my.found, bias, weights = _attention(tape, on, my.normed, encoded, place, True)
    dropped = op.dropout(tape, my.found, on.model.dropout)
    return op.add(tape, hidden, dropped), bias, weights


def _read(tape: Tape, rows: Size, width: int, item: int, number: int, place: Place) -> Tensor:
    """What is made before the block, and counted there: its gradient is added to that of the blocks behind."""
    made = Tensor(rows, width, item, None, (Node(-number, (), None, lambda _: []), 0))
    if not place.last:
        tape.seed(made)
    return made


@forward
def _attention(
    my: Names, tape: Tape, on: Setting, normed: Tensor, source: Tensor, place: Place, cross: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """T5Attention: queries of one, keys and values of the other."""
    width = on.heads * on.model.head_size
    my.query = op.transposed(tape, on.linear(tape, normed, width, "q"))
    my.key = op.transposed(tape, on.linear(tape, source, width, "k"))
    my.value = op.transposed(tape, on.linear(tape, source, width, "v"))
    bias = _plain_bias(tape, on, place) if cross else _bias(tape, on, place)
    out, weights = _scored(tape, on, my.query, my.key, my.value, bias, masked=place.decodes and not cross)
    return on.linear(tape, out, on.hidden, "o"), bias, weights


def _bias(tape: Tape, on: Setting, place: Place) -> Tensor:
    """The biases of all heads: looked up in the first block (compute_bias), and read in the others."""
    rows, tokens = biases(on), on.seq_len
    kernel = on.weight(on.model.relative_buckets * on.model.attention_heads)
    if not place.first:
        return _read(tape, rows, tokens, on.item, 2, place) if kernel.edge else Tensor(rows, tokens, on.item, None)
    pairs = (tokens, 0)
    distance = tape.make(pairs, tokens, op.INDEX)
    ids = _buckets(tape, pairs, tokens, place.decodes)
    saved = tape.keep(ids) if kernel.edge else None
    made = tape.make(rows, tokens, on.item)
    tape.hold(distance, ids)
    tape.node(made, (kernel,), saved, lambda _: [op.gradient_of(tape, kernel)])
    if not place.last:
        tape.seed(made)
    return made


def _buckets(tape: Tape, rows: Size, tokens: int, causal: bool) -> Tensor:
    """_relative_position_bucket, where it holds most: the distances' logarithms as they become whole numbers."""

    def new(item: int, *read: Tensor) -> Tensor:
        made = tape.make(rows, tokens, item)
        tape.hold(*read)
        return made

    buckets = None if causal else new(op.INDEX)
    position, small = new(op.INDEX), new(op.MASK)
    large = new(op.INDEX, new(op.FP32))
    raised = new(op.INDEX, large)
    full = new(op.INDEX)
    least = new(op.INDEX, full, raised)
    chosen = new(op.INDEX)
    if buckets is None:  # 0 + where(...): a copy
        buckets = new(op.INDEX, chosen)
    tape.hold(position, small, least)
    return buckets


def _plain_bias(tape: Tape, on: Setting, place: Place) -> Tensor:
    """Zeros for the cross-attention, made in the first block; under checkpointing the class has them ask."""
    rows, tokens = biases(on), on.source_len
    if place.again:
        made = _read(tape, rows, tokens, on.item, 3, place)
        if place.first:
            made.storage = tape.make(rows, tokens, on.item).storage
        return made
    return tape.make(rows, tokens, on.item) if place.first else Tensor(rows, tokens, on.item, None)


def _scored(
    tape: Tape, on: Setting, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, *, masked: bool
) -> tuple[Tensor, Tensor]:
    """eager_attention_forward: scores times 1.0, the bias, the mask, softmax in the model's type, dropout."""
    read = key.rows[1]  # tokens of a sequence that it attends to
    weights = bmm(tape, joined(tape, on, query), joined(tape, on, key), (0, on.seq_len * on.heads), read)
    weights = op.scaled(tape, weights)
    weights = op.add(tape, weights, bias)
    if masked:
        weights = op.add(tape, weights, Tensor(on.rows, read, on.item, None))
    weights = op.softmax(tape, weights)
    weights = op.dropout(tape, weights, on.model.dropout)
    out = op.transposed(tape, bmm(tape, weights, joined(tape, on, value), on.rows, value.width))
    return op.clone(tape, out), weights


@forward
def _feed_forward(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """T5LayerFF."""
    my.states = _norm(tape, on, hidden)
    my.states = (_gated if on.model.gated_ffn else _plain)(tape, on, my.states)
    dropped = op.dropout(tape, my.states, on.model.dropout)
    return op.add(tape, hidden, dropped)


def _plain(tape: Tape, on: Setting, states: Tensor) -> Tensor:
    """T5DenseActDense."""
    states = on.linear(tape, states, on.ffn, "wi")
    states = op.relu(tape, states)
    states = op.dropout(tape, states, on.model.dropout)
    return on.linear(tape, states, on.hidden, "wo")


@forward
def _gated(my: Names, tape: Tape, on: Setting, states: Tensor) -> Tensor:
    """T5DenseGatedActDense."""
    my.gelu = gelu_steps(tape, on.linear(tape, states, on.ffn, "wi_0"))
    my.straight = on.linear(tape, states, on.ffn, "wi_1")
    states = op.mul(tape, my.gelu, my.straight)
    states = op.dropout(tape, states, on.model.dropout)
    return on.linear(tape, states, on.hidden, "wo")


def saves_encoded(on: Setting) -> bool:
    """Whether keys or values save the encoder's output: to train their weight, or that of an adapter, or on zero.Init.

    With a dropout an adapter saves what that has made of it; a checkpoint saves its arguments anyway.
    """
    adapted = not on.drops and not {"k", "v", ALL_LINEAR}.isdisjoint(on.targets)
    return on.method == "full" or on.zero3 or on.asks or adapted


def between(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """From the encoder's last block to the decoder's first: the encoder's output, which lives on, and embeddings.

    `on` is the decoder's. The gradient of the embedding is added to that of the head, which has the same weight, and
    waits on with it.
    """
    encoded = op.dropout(tape, _norm(tape, on, hidden), on.model.dropout)
    ids = tape.make(on.rows, 1, op.INDEX)  # labels, moved on by one
    kernel = on.weight(on.model.vocab_size * on.hidden)
    tape.fetch()
    embedded = tape.make(on.rows, on.hidden, on.item)
    tape.used()

    def added(_: Tensor) -> list[Any]:
        op.gradient_of(tape, kernel)
        return []

    if kernel.edge:
        shared = Tensor(kernel.rows, kernel.width, kernel.item, None, (Node(tape.next(), (), None, added), 0))
        tape.node(embedded, (shared,), tape.keep(ids), lambda _: [op.gradient_of(tape, kernel)])
    on.ask(tape, embedded)
    states = op.dropout(tape, embedded, on.model.dropout)
    tape.hold(ids, embedded)

    def both(gradient: Tensor) -> list[Any]:
        return [gradient, tape.like(encoded) if states.edge else gradient]

    saved = tape.keep(encoded if saves_encoded(on) else None)
    return tape.node(op.view(states), (states, encoded), saved, both)  # type: ignore[no-any-return]


def head(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """Final norm, output head and loss, of which no copy in fp32 is made."""
    dropped = op.dropout(tape, _norm(tape, on, hidden), on.model.dropout)
    scaled = on.model.architecture == SCALED and not on.model.gated_ffn
    states = op.scaled(tape, dropped) if scaled else dropped
    logits = on.logits(tape, states)
    loss = cross_entropy(tape, logits)
    tape.hold(states, dropped)
    return loss
