"""GELU as GPT-2 and BLOOM write it out: step by step, and with a backward of its own."""

from __future__ import annotations

from typing import Any

from dsgen.memory.activations import operators as op
from dsgen.memory.activations.tape import Tape, Tensor

__all__ = ["bloom_gelu", "gelu_steps"]


def gelu_steps(tape: Tape, tensor: Tensor) -> Tensor:
    """NewGELUActivation: `0.5 * x * (1.0 + torch.tanh(c * (x + 0.044715 * torch.pow(x, 3.0))))`, step by step."""
    half = op.scaled(tape, tensor)
    cubed = op.power(tape, tensor)
    small = op.scaled(tape, cubed)
    del cubed
    inner = op.add(tape, tensor, small)
    del small
    bent = op.scaled(tape, inner)
    del inner
    curve = op.tanh(tape, bent)
    del bent
    raised = tape.node(op.like(tape, curve), (curve.edge,), None, lambda _, gradient: [gradient])
    del curve
    return op.mul(tape, half, raised)


def bloom_gelu(tape: Tape, tensor: Tensor) -> Tensor:
    """GeLUFunction: `x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))`, and by hand its backward:
    `0.5 * x * ((1 - t * t) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (1 + t)` of the tanh `t`, times the gradient.
    """

    def new() -> Tensor:
        return op.like(tape, tensor)

    half = new()
    made = _bent(new)
    bent = new()
    del made
    made = new()
    del half, bent
    saved = tape.keep(tensor)
    rows, width, item = tensor.rows, tensor.width, tensor.item

    def run(_: Any, gradient: Tensor) -> list[Any]:
        def make() -> Tensor:
            return tape.born(rows, width, item)

        curve = _bent(make)
        left = make()  # 0.5 * x
        square = make()
        slope = make()
        del square
        scaled = make()
        cubic = make()
        del scaled
        raised = make()
        del cubic
        product = make()
        del slope, raised
        whole = make()
        del left, product
        other = make()
        half_other = make()
        del other
        found = make()
        del whole, half_other
        result = [make()]
        del curve, found
        return result

    return tape.node(made, (tensor.edge,), saved, run)  # type: ignore[no-any-return]


def _bent(new: Any) -> Tensor:
    """`tanh(0.79788456 * x * (1 + 0.044715 * x * x))`."""
    left = new()
    scaled = new()
    square = new()
    del scaled
    raised = new()
    del square
    product = new()
    del left, raised
    made = new()
    del product
    return made  # type: ignore[no-any-return]
