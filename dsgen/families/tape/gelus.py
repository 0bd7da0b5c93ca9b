"""GELU as GPT-2 and BLOOM write it out: step by step, and with a backward of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsgen.families.tape import operators as op
from dsgen.families.tape.graph import STREAM
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["bloom_gelu", "gelu_steps"]


@forward
def gelu_steps(my: Names, tape: Tape, tensor: Tensor) -> Tensor:
    """NewGELUActivation: `0.5 * x * (1.0 + torch.tanh(c * (x + 0.044715 * torch.pow(x, 3.0))))`, step by step."""
    half = op.scaled(tape, tensor)
    inner = op.add(tape, tensor, op.scaled(tape, op.power(tape, tensor)))
    curve = op.tanh(tape, op.scaled(tape, inner))
    return op.mul(tape, half, op.one_plus(tape, curve))


def bloom_gelu(tape: Tape, tensor: Tensor) -> Tensor:
    """GeLUFunction: `x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))`, and by hand its backward:
    `0.5 * x * ((1 - t * t) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (1 + t)` of the tanh `t`, times the gradient.
    """

    def new(*read: Tensor) -> Tensor:
        made = tape.like(tensor)
        tape.moves(STREAM, *(read or (made,)), made)
        tape.hold(*read)
        return made

    half = new()
    made = new(half, new(_bent(new)))
    saved = tape.keep(tensor)

    def back(_: Tensor) -> list[Any]:
        curve = _bent(new)
        left = new()  # 0.5 * x
        slope = new(new())
        raised = new(new(new()))
        whole = new(left, new(slope, raised))
        other = new(new(curve))
        factor = new(whole, other)
        result = new(factor)
        tape.hold(curve)
        return [result]

    return tape.node(made, (tensor,), saved, back)  # type: ignore[no-any-return]


def _bent(new: Callable[..., Tensor]) -> Tensor:
    """`tanh(0.79788456 * x * (1 + 0.044715 * x * x))`."""
    left = new()
    scaled = new()
    raised = new(new(scaled))
    return new(new(left, raised))
