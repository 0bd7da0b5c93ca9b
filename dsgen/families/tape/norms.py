"""The norms of Llama and of the models written after it: sizes on a tape.

Source: transformers 5.23, models/{llama,gemma,gpt_oss,olmo2}/modeling_*.py. Names are those of the classes: they decide
how long a tensor lives.
"""

from __future__ import annotations

from collections.abc import Callable

from dsgen.families.tape import operators as op
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["Norm", "gemma_norm", "head_norm", "layer_norm", "mean_square", "norm", "rms_norm", "wide_rms_norm"]

Norm = Callable[[Tape, Execution, Tensor], Tensor]


def norm(tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """The family's own."""
    tape.begins()
    return on.norm(tape, on, hidden)


@forward
def rms_norm(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """LlamaRMSNorm: in fp32; the product with the weight in the model's type."""
    _scaled(my, tape, hidden)
    return op.mul(tape, on.weight(hidden.width), op.cast(tape, my.states, hidden.item))


@forward
def wide_rms_norm(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """GptOssRMSNorm and Olmo2RMSNorm: the product with the weight in fp32 too."""
    _scaled(my, tape, hidden)
    return op.cast(tape, op.mul(tape, on.weight(hidden.width), my.states), hidden.item)


def _scaled(my: Names, tape: Tape, hidden: Tensor) -> None:
    """States in fp32, divided by the root of the mean of their squares."""
    my.states = op.cast(tape, hidden, op.FP32)
    my.variance = mean_square(tape, my.states)
    my.states = op.mul(tape, my.states, op.rsqrt(tape, my.variance))


@forward
def gemma_norm(_: Names, tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """GemmaRMSNorm: `_norm(x.float()) * (1.0 + weight.float())`, then back to the type."""
    states = op.cast(tape, hidden, op.FP32)
    output = op.mul(tape, states, op.rsqrt(tape, mean_square(tape, states)))
    kernel = op.raised_weight(tape, op.cast(tape, on.weight(hidden.width), op.FP32))
    return op.cast(tape, op.mul(tape, output, kernel), hidden.item)


@forward
def layer_norm(_: Names, tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """nn.LayerNorm."""
    return on.layer_norm(tape, hidden)


def mean_square(tape: Tape, states: Tensor) -> Tensor:
    """The mean of the squares of every row."""
    return op.mean(tape, op.power(tape, states))


def head_norm(tape: Tape, on: Execution, tensor: Tensor, heads: int) -> Tensor:
    """A norm over every head."""
    rows, width = tensor.rows, tensor.width
    tape.begins()
    normed = (on.head_norm or on.norm)(tape, on, op.view(tensor, (rows[0] * heads, rows[1] * heads), width // heads))
    return op.view(normed, rows, width)
