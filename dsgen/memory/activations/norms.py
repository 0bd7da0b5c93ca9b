"""The norms of Llama and of the models written after it: sizes on a tape.

Source: transformers 5.23, models/{llama,cohere,gemma,gpt_oss,olmo2}/modeling_*.py. Local variables are those of the
classes: they decide how long a tensor lives.
"""

from __future__ import annotations

from dsgen.memory.activations import operators as op
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Tape, Tensor

__all__ = ["GEMMAS", "head_norm", "norm"]

GEMMAS = frozenset({"gemma", "gemma2", "gemma3_text"})
LAYER_NORMS = frozenset({"stablelm", "starcoder2"})
WIDE_PRODUCTS = frozenset({"gpt_oss", "olmo2"})  # the norm multiplies by its weight in fp32


def norm(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """LlamaRMSNorm: in fp32; the product with the weight in the model's type. Gemma's makes that in fp32 too."""
    if on.model.architecture in LAYER_NORMS:
        return on.layer_norm(tape, hidden)
    if on.model.architecture == "cohere":
        return _cohere_norm(tape, on, hidden)
    if on.model.architecture in GEMMAS:
        return _gemma_norm(tape, on, hidden)
    if on.model.architecture in WIDE_PRODUCTS:
        return _gpt_oss_norm(tape, on, hidden)
    width = hidden.width
    states = op.cast(tape, hidden, op.FP32)
    variance = _mean_square(tape, states)
    scale = op.rsqrt(tape, variance)
    states = op.mul(tape, states, scale)
    del scale
    narrow = op.cast(tape, states, hidden.item)
    return op.mul(tape, on.weight(width), narrow)


def _mean_square(tape: Tape, states: Tensor) -> Tensor:
    squares = op.power(tape, states)
    return op.mean(tape, squares)


def _gemma_norm(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """GemmaRMSNorm: `_norm(x.float()) * (1.0 + weight.float())`, then back to the type."""
    width = hidden.width
    states = op.cast(tape, hidden, op.FP32)
    scale = op.rsqrt(tape, _mean_square(tape, states))
    output = op.mul(tape, states, scale)
    del states, scale
    kernel = op.cast(tape, on.weight(width), op.FP32)
    kernel = op.scaled(tape, kernel)
    output = op.mul(tape, output, kernel)
    del kernel
    return op.cast(tape, output, hidden.item)


def _cohere_norm(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """CohereLayerNorm: no bias, in fp32 with the weight too, then back to the type."""
    item, width = hidden.item, hidden.width
    states = op.cast(tape, hidden, op.FP32)
    mean = op.mean(tape, states)
    apart = op.sub(tape, states, mean)
    variance = _mean_square(tape, apart)
    apart = op.sub(tape, states, mean)
    scale = op.rsqrt(tape, variance)
    states = op.mul(tape, apart, scale)
    del apart, scale
    kernel = op.cast(tape, on.weight(width), op.FP32)
    states = op.mul(tape, kernel, states)
    del kernel
    return op.cast(tape, states, item)


def _gpt_oss_norm(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """GptOssRMSNorm and Olmo2RMSNorm: the product with the weight in fp32, then back to the type."""
    states = op.cast(tape, hidden, op.FP32)
    variance = _mean_square(tape, states)
    scale = op.rsqrt(tape, variance)
    states = op.mul(tape, states, scale)
    del scale
    product = op.mul(tape, on.weight(hidden.width), states)
    return op.cast(tape, product, hidden.item)


def head_norm(tape: Tape, on: Setting, tensor: Tensor, heads: int) -> Tensor:
    """A norm over every head."""
    rows, width = tensor.rows, tensor.width
    normed = norm(tape, on, op.view(tensor, (rows[0] * heads, rows[1] * heads), width // heads))
    return op.view(normed, rows, width)
