"""Layouts of models with an encoder, whose output the decoder's blocks attend to: T5 and mT5.

Source: as in layouts.py.
"""

from __future__ import annotations

from dsgen.families.parameters.rows import Layout, Tensor, linear, norm

__all__ = ["MT5", "T5"]


def _attention(name: str) -> tuple[Tensor, ...]:
    """T5Attention: no biases, and every head has its own key and value."""
    return (
        *linear(f"{name}.q", "q", "hidden", "attention"),
        *linear(f"{name}.k", "kv", "hidden", "attention"),
        *linear(f"{name}.v", "kv", "hidden", "attention"),
        *linear(f"{name}.o", "hidden", "q", "attention"),
    )


_SELF = (
    *_attention("layer.0.SelfAttention"),
    # One table for all blocks of a stack, in its first.
    Tensor("layer.0.SelfAttention.relative_attention_bias.weight", ("buckets", "heads"), "position", "first"),
    *norm("layer.0.layer_norm"),
)


def _feed_forward(name: str) -> tuple[Tensor, ...]:
    """T5LayerFF, whose two matrices before the activation are one where there is no gate."""
    return (
        *linear(f"{name}.DenseReluDense.wi_0", "ffn", "hidden", "mlp", when="gated"),
        *linear(f"{name}.DenseReluDense.wi_1", "ffn", "hidden", "mlp", when="gated"),
        *linear(f"{name}.DenseReluDense.wi", "ffn", "hidden", "mlp", when="ungated"),
        *linear(f"{name}.DenseReluDense.wo", "hidden", "ffn", "mlp"),
        *norm(f"{name}.layer_norm"),
    )


def _t5(huggingface: str) -> Layout:
    """An encoder, the norm behind it, and a decoder with a second attention in every block."""
    return Layout(
        huggingface=huggingface,
        before=(Tensor("shared.weight", ("vocab", "hidden"), "embedding"),),
        encoder_block="encoder.block.*",
        encoder=(*_SELF, *_feed_forward("layer.1")),
        between=norm("encoder.final_layer_norm"),
        block="decoder.block.*",
        dense=(
            *_SELF,
            *_attention("layer.1.EncDecAttention"),
            *norm("layer.1.layer_norm"),
            *_feed_forward("layer.2"),
        ),
        after=norm("decoder.final_layer_norm"),
        gated=None,
        same_heads=True,
        tied=True,
        dropouts=True,
    )


MT5 = _t5("MT5ForConditionalGeneration")
T5 = _t5("T5ForConditionalGeneration")
