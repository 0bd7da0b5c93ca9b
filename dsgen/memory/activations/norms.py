"""The norms of Llama and of the models written after it: sizes on a tape.

Source: transformers 5.23, models/{llama,cohere,gemma,gpt_oss,olmo2}/modeling_*.py. Names are those of the
classes: they decide how long a tensor lives.
"""

from __future__ import annotations

from dsgen.memory.activations import operators as op
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Names, Tape, Tensor, forward

__all__ = ["GEMMAS", "head_norm", "norm"]

GEMMAS = frozenset({"gemma", "gemma2", "gemma3_text"})
LAYER_NORMS = frozenset({"stablelm", "starcoder2"})
WIDE_PRODUCTS = frozenset({"gpt_oss", "olmo2"})  # the norm multiplies by its weight in fp32


@forward
def norm(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """LlamaRMSNorm: in fp32; the product with the weight in the model's type. Gemma's makes that in fp32 too."""
    if on.model.architecture in LAYER_NORMS:
        return on.layer_norm(tape, hidden)
    if on.model.architecture == "cohere":
        return _cohere_norm(tape, on, hidden)
    if on.model.architecture in GEMMAS:
        return _gemma_norm(tape, on, hidden)
    my.states = op.cast(tape, hidden, op.FP32)
    my.variance = _mean_square(tape, my.states)
    my.states = op.mul(tape, my.states, op.rsqrt(tape, my.variance))
    if on.model.architecture in WIDE_PRODUCTS:  # GptOssRMSNorm and Olmo2RMSNorm
        return op.cast(tape, op.mul(tape, on.weight(hidden.width), my.states), hidden.item)
    return op.mul(tape, on.weight(hidden.width), op.cast(tape, my.states, hidden.item))


def _mean_square(tape: Tape, states: Tensor) -> Tensor:
    return op.mean(tape, op.power(tape, states))


def _gemma_norm(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """GemmaRMSNorm: `_norm(x.float()) * (1.0 + weight.float())`, then back to the type."""
    states = op.cast(tape, hidden, op.FP32)
    output = op.mul(tape, states, op.rsqrt(tape, _mean_square(tape, states)))
    kernel = op.scaled(tape, op.cast(tape, on.weight(hidden.width), op.FP32))
    return op.cast(tape, op.mul(tape, output, kernel), hidden.item)


@forward
def _cohere_norm(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """CohereLayerNorm: no bias, in fp32 with the weight too, then back to the type."""
    my.states = op.cast(tape, hidden, op.FP32)
    my.mean = op.mean(tape, my.states)
    my.apart = op.sub(tape, my.states, my.mean)
    my.variance = _mean_square(tape, my.apart)
    my.apart = op.sub(tape, my.states, my.mean)
    my.states = op.mul(tape, my.apart, op.rsqrt(tape, my.variance))
    my.apart = None
    kernel = op.cast(tape, on.weight(hidden.width), op.FP32)
    my.states = op.mul(tape, kernel, my.states)
    return op.cast(tape, my.states, hidden.item)


def head_norm(tape: Tape, on: Setting, tensor: Tensor, heads: int) -> Tensor:
    """A norm over every head."""
    rows, width = tensor.rows, tensor.width
    normed = norm(tape, on, op.view(tensor, (rows[0] * heads, rows[1] * heads), width // heads))
    return op.view(normed, rows, width)
