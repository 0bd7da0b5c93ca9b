"""T5 and mT5: an encoder, and a decoder that attends to what it has made; position biases in the place of positions.

Both tie the head to the embedding, whatever a config says; T5's `tie_word_embeddings: false` says instead that the
decoder's output is not scaled before the head.
"""

from __future__ import annotations

import functools

import attrs

from dsgen.families import rows
from dsgen.families.family import Facts, Family
from dsgen.families.keys import AS_ENCODER, HEADS, Key, keys
from dsgen.families.orders import Order
from dsgen.families.reading import Reader

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


def _keys(blocks: int, heads: int, ffn: int, vocabulary: int) -> tuple[Key, ...]:
    """Keys with the defaults of a class; the decoder has as many blocks as the encoder if nothing is said."""
    found = keys(
        *(AS_ENCODER, 512, heads, HEADS, 64, ffn, vocabulary, _POSITIONS),
        tied=True,
        names=_NAMES,
        encoder_layers=blocks,
        relative_buckets=32,
    )
    late = [attrs.evolve(key, null=AS_ENCODER) for key in found if key.fact == "layers"]
    return (*(key for key in found if key.fact != "layers"), *late)


def _read_gate(default: str, reader: Reader, _: Facts) -> dict[str, object]:
    """Whether the feed-forward part has a gate.

    Raises:
        DsgenError: Another activation than those two.
    """
    found = reader.part.get("feed_forward_proj", default)
    if found not in (_GATED, _PLAIN):
        raise reader.unsupported(
            f"feed_forward_proj is {found!r}", f"dsgen counts this model_type with {_GATED} or {_PLAIN} only"
        )
    return {"gated_ffn": found == _GATED}


def _read_t5(reader: Reader, facts: Facts) -> dict[str, object]:
    """As `_read_gate`.

    Raises:
        DsgenError: Also a gate where the decoder's output is scaled, or the reverse: no published model is so.
    """
    found = _read_gate(_PLAIN, reader, facts)
    untied = reader.part.get("tie_word_embeddings") is False
    if reader.part.get("scale_decoder_outputs", not untied) is not (not found["gated_ffn"]):
        name = "scale_decoder_outputs" if "scale_decoder_outputs" in reader.part else "tie_word_embeddings"
        activation = reader.part.get("feed_forward_proj", _PLAIN)
        raise reader.unsupported(
            f"{name} is {str(reader.part.get(name)).lower()} with feed_forward_proj {activation!r}",
            f"dsgen counts t5 with tie_word_embeddings true and {_PLAIN} (T5), or false and {_GATED} (T5 1.1), only",
        )
    return found


def _write_gate(facts: Facts) -> dict[str, object]:
    return {"feed_forward_proj": _GATED if facts["gated_ffn"] else _PLAIN}


def _write_t5(facts: Facts) -> dict[str, object]:
    return {**_write_gate(facts), "tie_word_embeddings": not facts["gated_ffn"]}


def _attention(name: str) -> tuple[rows.Row, ...]:
    """T5Attention: no biases, and every head has its own key and value."""
    return (
        *rows.linear(f"{name}.q", "q", "hidden", "attention"),
        *rows.linear(f"{name}.k", "kv", "hidden", "attention"),
        *rows.linear(f"{name}.v", "kv", "hidden", "attention"),
        *rows.linear(f"{name}.o", "hidden", "q", "attention"),
    )


def _feed_forward(name: str) -> tuple[rows.Row, ...]:
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
    rows.Row("layer.0.SelfAttention.relative_attention_bias.weight", ("buckets", "heads"), "position", "first"),
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
    layout=rows.Layout(
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
)
MT5 = attrs.evolve(
    T5,
    model_type="mt5",
    huggingface="MT5ForConditionalGeneration",
    keys=_keys(8, 6, 1024, 250112),
    gated=True,
    read=functools.partial(_read_gate, _GATED),
    write=_write_gate,
)
