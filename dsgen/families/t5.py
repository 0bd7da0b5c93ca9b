"""T5 and mT5: an encoder, and a decoder that attends to what it has made; position biases in the place of positions.

Both tie the head to the embedding, whatever a config says; T5's `tie_word_embeddings: false` says instead that the
decoder's output is not scaled before the head.
"""

from __future__ import annotations

import functools
from typing import Any

import attrs

from dsgen.families import rows
from dsgen.families.config_keys import AS_ENCODER, HEADS, ConfigKey, keys
from dsgen.families.family import Facts, Family
from dsgen.families.orders import Order
from dsgen.families.parts.relative import biases, distance_biases, plain_biases, read_before
from dsgen.families.peft import ALL_LINEAR
from dsgen.families.reading import Reader
from dsgen.families.tape import operators as op
from dsgen.families.tape.attending import joined
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import InStack, Stacks
from dsgen.families.tape.gelus import gelu_steps
from dsgen.families.tape.graph import COPY, EMBEDDING, STREAM
from dsgen.families.tape.products import bmm, cross_entropy
from dsgen.families.tape.tape import Names, Node, Tape, Tensor, forward

__all__ = ["MT5", "T5"]

_POSITIONS = 512  # tokens of a sequence in pretraining (arXiv 1910.10683, 2.1; n_positions of the published files)
_GATED, _PLAIN = "gated-gelu", "relu"
_NAMES: dict[str, tuple[str, ...]] = {
    "layers": ("num_decoder_layers",),
    "hidden_size": ("d_model", "hidden_size"),
    "attention_heads": ("num_heads", "num_attention_heads"),
    "kv_heads": (),
    "head_size": ("d_kv", "head_dim"),
    "ffn_size": ("d_ff",),
    "max_positions": ("n_positions",),
    "tied_embeddings": (),
    "encoder_layers": ("num_layers", "num_hidden_layers"),
    "relative_buckets": ("relative_attention_num_buckets",),
}


def _keys(blocks: int, heads: int, ffn: int, vocabulary: int) -> tuple[ConfigKey, ...]:
    """Keys with the defaults of a class; the decoder has as many blocks as the encoder if nothing is said."""
    plain = keys(
        *(AS_ENCODER, 512, heads, HEADS, 64, ffn, vocabulary, _POSITIONS),
        tied=True,
        names=_NAMES,
        encoder_layers=blocks,
        relative_buckets=32,
    )
    late = [key._replace(null=AS_ENCODER) for key in plain if key.fact == "layers"]
    return (*(key for key in plain if key.fact != "layers"), *late)


def _read_gate(default: str, reader: Reader, _: Facts) -> dict[str, object]:
    """Whether the feed-forward part has a gate.

    Raises:
        DsgenError: Another activation than those two.
    """
    written = reader.part.get("feed_forward_proj", default)
    if written not in (_GATED, _PLAIN):
        raise reader.unsupported(
            f"feed_forward_proj is {written!r}", f"dsgen counts this model_type with {_GATED} or {_PLAIN} only"
        )
    return {"gated_ffn": written == _GATED}


def _read_t5(reader: Reader, facts: Facts) -> dict[str, object]:
    """As `_read_gate`.

    Raises:
        DsgenError: Also a gate where the decoder's output is scaled, or the reverse: no published model is so.
    """
    gate = _read_gate(_PLAIN, reader, facts)
    untied = reader.part.get("tie_word_embeddings") is False
    if reader.part.get("scale_decoder_outputs", not untied) is not (not gate["gated_ffn"]):
        name = "scale_decoder_outputs" if "scale_decoder_outputs" in reader.part else "tie_word_embeddings"
        activation = reader.part.get("feed_forward_proj", _PLAIN)
        raise reader.unsupported(
            f"{name} is {str(reader.part.get(name)).lower()} with feed_forward_proj {activation!r}",
            f"dsgen counts t5 with tie_word_embeddings true and {_PLAIN} (T5), or false and {_GATED} (T5 1.1), only",
        )
    return gate


def _write_gate(facts: Facts) -> dict[str, object]:
    return {"feed_forward_proj": _GATED if facts["gated_ffn"] else _PLAIN}


def _write_t5(facts: Facts) -> dict[str, object]:
    return {**_write_gate(facts), "tie_word_embeddings": not facts["gated_ffn"]}


def _attention(name: str) -> tuple[rows.TensorRow, ...]:
    """T5Attention: no biases, and every head has its own key and value."""
    return (
        *rows.linear(f"{name}.q", "q", "hidden", "attention"),
        *rows.linear(f"{name}.k", "kv", "hidden", "attention"),
        *rows.linear(f"{name}.v", "kv", "hidden", "attention"),
        *rows.linear(f"{name}.o", "hidden", "q", "attention"),
    )


def _feed_forward(name: str) -> tuple[rows.TensorRow, ...]:
    """T5LayerFF, whose two matrices before the activation are one where there is no gate."""
    return (
        *rows.linear(f"{name}.DenseReluDense.wi_0", "ffn", "hidden", "mlp", when="gated"),
        *rows.linear(f"{name}.DenseReluDense.wi_1", "ffn", "hidden", "mlp", when="gated"),
        *rows.linear(f"{name}.DenseReluDense.wi", "ffn", "hidden", "mlp", when="ungated"),
        *rows.linear(f"{name}.DenseReluDense.wo", "hidden", "ffn", "mlp"),
        *rows.norm(f"{name}.layer_norm"),
    )


_SELF = (
    *_attention("layer.0.SelfAttention"),
    # One table for all blocks of a stack, in its first.
    rows.TensorRow("layer.0.SelfAttention.relative_attention_bias.weight", ("buckets", "heads"), "position", "first"),
    *rows.norm("layer.0.layer_norm"),
)


def _projected(layer: int, name: str) -> str:
    own = f"layer.{layer}.{name}"
    return f"layer.{layer} layer.{layer}.layer_norm {own} {own}.q {own}.k {own}.v"


def _feeding(layer: int) -> str:
    own = f"layer.{layer}.DenseReluDense"
    inside = " ".join(f"{own}.{name}" for name in ("wi", "wi_0", "act", "wi_1", "dropout", "wo"))
    return f"layer.{layer} layer.{layer}.layer_norm {own} {inside} layer.{layer}.dropout"


_SELF_RUNS = f"{_projected(0, 'SelfAttention')} layer.0.SelfAttention.relative_attention_bias" + (
    " layer.0.SelfAttention.o layer.0.dropout"
)
_CROSS_RUNS = f"{_projected(1, 'EncDecAttention')} layer.1.EncDecAttention.o layer.1.dropout"


def _before(tape: Tape, on: Execution) -> tuple[Tensor, Tensor]:
    """The encoder's embedding, with its dropout and without."""
    model = on.model
    embedded = op.embedding(tape, on.rows, on.outer(model.vocab_size * on.hidden), on.hidden)
    on.ask(tape, embedded)
    return op.dropout(tape, embedded, model.dropout), embedded


@forward
def _block(my: Names, tape: Tape, on: Execution, hidden: Tensor, place: InStack) -> Tensor:
    """T5Block."""
    my.hidden, my.bias, my.weights = _self_attention(tape, on, hidden, place)
    my.hidden = _clamped(tape, on, my.hidden)
    if place.decodes:
        my.hidden, my.plain, my.weights = _cross_attention(tape, on, my.hidden, place)
        my.hidden = _clamped(tape, on, my.hidden)
    my.hidden = _feed(tape, on, my.hidden)
    return _clamped(tape, on, my.hidden)


def _norm(tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """T5LayerNorm: no mean is taken off; only the variance is made in fp32."""
    width, item = hidden.width, hidden.item
    variance = op.mean(tape, op.power(tape, op.cast(tape, hidden, op.FP32)))
    hidden = op.mul(tape, hidden, op.rsqrt(tape, variance))
    hidden = op.cast(tape, hidden, item)
    made = op.mul(tape, on.weight(width), hidden)
    tape.hold(variance)
    return made


def _clamped(tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
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
def _self_attention(
    my: Names, tape: Tape, on: Execution, hidden: Tensor, place: InStack
) -> tuple[Tensor, Tensor, Tensor]:
    my.normed = _norm(tape, on, hidden)
    my.attended, bias, weights = _t5_attention(tape, on, my.normed, my.normed, place, False)
    dropped = op.dropout(tape, my.attended, on.model.dropout)
    return op.add(tape, hidden, dropped), bias, weights


@forward
def _cross_attention(
    my: Names, tape: Tape, on: Execution, hidden: Tensor, place: InStack
) -> tuple[Tensor, Tensor, Tensor]:
    my.normed = _norm(tape, on, hidden)
    encoded = read_before(tape, (0, on.source_len), on.hidden, on.item, 1, place)
    my.attended, bias, weights = _t5_attention(tape, on, my.normed, encoded, place, True)
    dropped = op.dropout(tape, my.attended, on.model.dropout)
    return op.add(tape, hidden, dropped), bias, weights


@forward
def _t5_attention(
    my: Names, tape: Tape, on: Execution, normed: Tensor, source: Tensor, place: InStack, cross: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """T5Attention: queries of one, keys and values of the other."""
    width = on.heads * on.model.head_size
    my.query = op.transposed(tape, on.linear(tape, normed, width, "q"))
    my.key = op.transposed(tape, on.linear(tape, source, width, "k"))
    my.value = op.transposed(tape, on.linear(tape, source, width, "v"))
    bias = plain_biases(tape, on, place) if cross else distance_biases(tape, on, place)
    out, weights = _scored(tape, on, my.query, my.key, my.value, bias, masked=place.decodes and not cross)
    return on.linear(tape, out, on.hidden, "o"), bias, weights


def _scored(
    tape: Tape, on: Execution, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, *, masked: bool
) -> tuple[Tensor, Tensor]:
    """eager_attention_forward: scores times 1.0, the bias, the mask, softmax in the model's type, dropout."""
    read = key.rows[1]  # tokens of a sequence that it attends to
    size = query.width // on.heads
    first, second = joined(tape, on, query), joined(tape, on, key)
    weights = bmm(tape, first, second, (0, on.seq_len * on.heads), read, on.heads, (on.seq_len, read, size))
    weights = op.scaled(tape, weights)
    weights = op.add(tape, weights, bias)
    if masked:
        weights = op.add(tape, weights, Tensor(on.rows, read, on.item, None))
    weights = op.softmax(tape, weights)
    weights = op.dropout(tape, weights, on.model.dropout)
    shape = on.seq_len, size, read
    out = op.transposed(tape, bmm(tape, weights, joined(tape, on, value), on.rows, value.width, on.heads, shape))
    return op.clone(tape, out), weights


@forward
def _feed(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """T5LayerFF."""
    my.states = _norm(tape, on, hidden)
    my.states = (_gated_feed if on.model.gated_ffn else _plain_feed)(tape, on, my.states)
    dropped = op.dropout(tape, my.states, on.model.dropout)
    return op.add(tape, hidden, dropped)


def _plain_feed(tape: Tape, on: Execution, states: Tensor) -> Tensor:
    """T5DenseActDense."""
    states = on.linear(tape, states, on.ffn, "wi")
    states = op.relu(tape, states)
    states = op.dropout(tape, states, on.model.dropout)
    return on.linear(tape, states, on.hidden, "wo")


@forward
def _gated_feed(my: Names, tape: Tape, on: Execution, states: Tensor) -> Tensor:
    """T5DenseGatedActDense."""
    my.gelu = gelu_steps(tape, on.linear(tape, states, on.ffn, "wi_0"))
    my.straight = on.linear(tape, states, on.ffn, "wi_1")
    states = op.mul(tape, my.gelu, my.straight)
    states = op.dropout(tape, states, on.model.dropout)
    return on.linear(tape, states, on.hidden, "wo")


def _saves_encoded(on: Execution) -> bool:
    """Whether keys or values save the encoder's output: to train their weight, or that of an adapter, or on zero.Init.

    With a dropout an adapter saves what that has made of it; a checkpoint saves its arguments anyway.
    """
    adapted = not on.drops and not {"k", "v", ALL_LINEAR}.isdisjoint(on.targets)
    return on.method == "full" or on.zero3 or on.asks or adapted


def _between(tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
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

    def added(gradient: Tensor) -> list[Any]:
        tape.moves(STREAM, gradient, gradient, op.gradient_of(tape, kernel))
        return []

    def embedding_gradient(gradient: Tensor) -> list[Any]:
        result = op.gradient_of(tape, kernel)
        tape.moves(EMBEDDING, gradient, result)
        return [result]

    tape.moves(COPY, ids, ids)
    tape.moves(EMBEDDING, embedded, embedded)
    if kernel.edge:
        shared = Tensor(kernel.rows, kernel.width, kernel.item, None, (Node(tape.next(), (), None, added), 0))
        tape.node(embedded, (shared,), tape.keep(ids), embedding_gradient)
    on.ask(tape, embedded)
    states = op.dropout(tape, embedded, on.model.dropout)
    tape.hold(ids, embedded)

    def both(gradient: Tensor) -> list[Any]:
        return [gradient, tape.like(encoded) if states.edge else gradient]

    saved = tape.keep(encoded if _saves_encoded(on) else None)
    return tape.node(op.view(states), (states, encoded), saved, both)  # type: ignore[no-any-return]


def _head(tape: Tape, on: Execution, hidden: Tensor, *, scales: bool = False) -> Tensor:
    """Final norm, output head and loss, of which no copy in fp32 is made."""
    dropped = op.dropout(tape, _norm(tape, on, hidden), on.model.dropout)
    states = op.scaled(tape, dropped) if scales and not on.model.gated_ffn else dropped
    logits = on.logits(tape, states)
    loss = cross_entropy(tape, logits)
    tape.hold(states, dropped)
    return loss


_STACKS = Stacks(_before, _block, _between, _head, _norm, biases, _saves_encoded)

T5 = Family(
    model_type="t5",
    huggingface="T5ForConditionalGeneration",
    keys=_keys(6, 8, 2048, 32128),
    gated=False,
    chooses_gate=True,
    pinned={"is_encoder_decoder": True, "is_decoder": False},
    dropouts={"dropout_rate": 0.1},
    read=_read_t5,
    write=_write_t5,
    layout=rows.TensorLayout(
        before=rows.embedding("shared.weight"),
        encoder_block="encoder.block.*",
        encoder=(*_SELF, *_feed_forward("layer.1")),
        between=rows.norm("encoder.final_layer_norm"),
        block="decoder.block.*",
        dense=(
            *_SELF,
            *_attention("layer.1.EncDecAttention"),
            *rows.norm("layer.1.layer_norm"),
            *_feed_forward("layer.2"),
        ),
        after=rows.norm("decoder.final_layer_norm"),
    ),
    order=Order(
        dense=f"{_SELF_RUNS} {_CROSS_RUNS} {_feeding(2)}",
        encoder=f"{_SELF_RUNS} {_feeding(1)}",
        between="encoder.final_layer_norm encoder.dropout decoder decoder.embed_tokens decoder.dropout",
        ahead="shared dropout",
    ),
    kernels=("sdpa",),
    forward=_STACKS._replace(head=functools.partial(_head, scales=True)),
)
MT5 = attrs.evolve(
    T5,
    model_type="mt5",
    huggingface="MT5ForConditionalGeneration",
    keys=_keys(8, 6, 1024, 250112),
    gated=True,
    read=functools.partial(_read_gate, _GATED),
    write=_write_gate,
    forward=_STACKS,
)
