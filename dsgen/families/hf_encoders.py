"""How model types with an encoder write their facts in config.json, and what they say in a way of their own.

Source: the configuration classes of T5 and mT5 in transformers 5.23. Both tie the head to the embedding, whatever the
file says; T5's `tie_word_embeddings: false` says instead that the decoder's output is not scaled before the head.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from dsgen.families.hf_names import AS_ENCODER, HEADS, Family, keys
from dsgen.families.hf_variants import Reading

__all__ = ["ENCODER_DECODERS", "read_encoder", "written_encoder"]

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


def _family(blocks: int, heads: int, ffn: int, vocabulary: int, *, gated: bool) -> Family:
    """A family with the defaults of its class; the decoder has as many blocks as the encoder if nothing is said."""
    found = keys(
        *(AS_ENCODER, 512, heads, HEADS, 64, ffn, vocabulary, _POSITIONS),
        tied=True,
        names=_NAMES,
        encoder_layers=blocks,
        relative_buckets=32,
    )
    late = [attrs.evolve(key, null=AS_ENCODER) for key in found if key.fact == "layers"]
    return Family(
        (*(key for key in found if key.fact != "layers"), *late),
        gated=gated,
        pinned={"is_encoder_decoder": True, "is_decoder": False},
        dropouts={"dropout_rate": 0.1},
    )


ENCODER_DECODERS: dict[str, Family] = {
    "mt5": _family(8, 6, 1024, 250112, gated=True),
    "t5": _family(6, 8, 2048, 32128, gated=False),
}


def read_encoder(model_type: str, reader: Reading) -> bool:
    """Whether the feed-forward part has a gate.

    Raises:
        DsgenError: Another activation than those two, or T5 with a gate whose decoder's output is scaled, or the
            reverse: no published model is so.
    """
    default = _GATED if ENCODER_DECODERS[model_type].gated else _PLAIN
    found = reader.part.get("feed_forward_proj", default)
    if found not in (_GATED, _PLAIN):
        raise reader.unsupported(
            f"feed_forward_proj is {found!r}", f"dsgen counts this model_type with {_GATED} or {_PLAIN} only"
        )
    gated = found == _GATED
    untied = reader.part.get("tie_word_embeddings") is False
    scaled = reader.part.get("scale_decoder_outputs", not untied)
    if model_type == "t5" and scaled is not (not gated):
        name = "scale_decoder_outputs" if "scale_decoder_outputs" in reader.part else "tie_word_embeddings"
        raise reader.unsupported(
            f"{name} is {str(reader.part.get(name)).lower()} with feed_forward_proj {found!r}",
            f"dsgen counts t5 with tie_word_embeddings true and {_PLAIN} (T5), or false and {_GATED} (T5 1.1), only",
        )
    return gated


def written_encoder(model_type: str, facts: Mapping[str, object]) -> dict[str, object]:
    """The keys that `read_encoder` reads."""
    gated = bool(facts["gated_ffn"])
    tied = {"tie_word_embeddings": not gated} if model_type == "t5" else {}
    return {"feed_forward_proj": _GATED if gated else _PLAIN, **tied}
