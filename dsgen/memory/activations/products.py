"""Matrix products, attention and the loss on a tape.

Source: derivatives.yaml of PyTorch 2.13 (of `mm`: mat2 before self; of `addmm`: mat1, mat2, self), and for attention
flash_attn_interface.py and flash_api.cpp of FlashAttention 2.
"""

from __future__ import annotations

from typing import Any

from dsgen.memory.activations.operators import FP32, like
from dsgen.memory.activations.tape import GRADIENTS, Fitted, Leaf, Size, Tape, Tensor

__all__ = ["bmm", "cross_entropy", "flash", "grouped", "layer_norm", "linear"]

FLASH_ROWS = 128  # rows to which FlashAttention 2 rounds its backward's work space (csrc/flash_attn/flash_api.cpp)
FLASH_HEAD = 32  # elements to which it rounds a head there


def _gradient(tape: Tape, edge: Any, size: tuple[int, int]) -> Tensor | None:
    """The gradient of a weight, or of a copy of one in another type; `size` is its elements and their bytes."""
    return tape.born((1, 0), *size, GRADIENTS if isinstance(edge, Leaf) else None) if edge else None


def linear(tape: Tape, tensor: Tensor, kernel: Tensor, out: int, bias: Tensor | None = None) -> Tensor:
    """`mm`, or `addmm` where there is a bias. The input is saved for the weight's gradient only."""
    saved = tape.keep(tensor if kernel.edge else None, kernel if tensor.edge else None)
    made = tape.born(tensor.rows, out, tensor.item)
    width, item, leaf, into = tensor.width, tensor.item, kernel.edge, tensor.edge
    size = kernel.width, kernel.item

    def run(_: Any, gradient: Tensor) -> list[Any]:
        second = _gradient(tape, leaf, size)
        return [tape.born(gradient.rows, width, item) if into else None, second]

    if bias is None:
        return tape.node(made, (into, leaf), saved, run)  # type: ignore[no-any-return]
    offset = bias.edge

    def run_with_bias(_: Any, gradient: Tensor) -> list[Any]:
        first = tape.born(gradient.rows, width, item) if into else None
        second = _gradient(tape, leaf, size)
        return [Fitted(gradient, (1, 0), out, item) if offset else None, first, second]

    return tape.node(made, (offset, into, leaf), saved, run_with_bias)  # type: ignore[no-any-return]


def grouped(tape: Tape, tensor: Tensor, kernel: Tensor, out: int) -> Tensor:
    """`grouped_mm`: rows sorted by expert, each times its expert's matrix; the gradient is that of all experts."""
    return linear(tape, tensor, kernel, out)


def bmm(tape: Tape, one: Tensor, other: Tensor, rows: Size, width: int) -> Tensor:
    """`torch.bmm(one, other)` with a result of the given size."""
    saved = tape.keep(one if other.edge else None, other if one.edge else None)
    made = tape.born(rows, width, one.item)
    shapes = [(tensor.rows, tensor.width, tensor.item, tensor.edge) for tensor in (other, one)]

    def run(*_: Any) -> list[Any]:
        found = [tape.born(rows, width, item) if edge else None for rows, width, item, edge in shapes]
        found.reverse()
        return found

    return tape.node(made, (one.edge, other.edge), saved, run)  # type: ignore[no-any-return]


def flash(tape: Tape, query: Tensor, key: Tensor, value: Tensor, heads: int, kv_heads: int) -> Tensor:
    """FlashAttention 2, which torch's fused kernels of scaled_dot_product_attention equal in what they keep.

    Forward saves query, key, value, output and an fp32 log-sum-exp of every row; backward makes three gradients, an
    fp32 sum for every row, an fp32 gradient of the query, and for grouped queries expanded gradients of keys, values.
    """
    size = query.width // heads
    made = like(tape, query)
    lse = tape.born(query.rows, heads, FP32)
    saved = tape.keep(query, key, value, made, lse)
    widths = query.width, key.width, value.width

    def run(_: Any, gradient: Tensor) -> list[Any]:
        rows, item = gradient.rows, gradient.item
        found = [tape.born(rows, width, item) for width in widths]
        padded = tape.padded(rows, FLASH_ROWS)
        work = [tape.born(padded, heads, FP32)]
        work.append(tape.born(padded, heads * (-(-size // FLASH_HEAD) * FLASH_HEAD), FP32))
        if kv_heads != heads:
            work += [tape.born(rows, heads * size, item) for _ in range(2)]
        work.clear()
        return found

    return tape.node(made, (query.edge, key.edge, value.edge), saved, run)  # type: ignore[no-any-return]


def layer_norm(tape: Tape, tensor: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    """`native_layer_norm`: saves its input and an fp32 mean and deviation of every row."""
    width, item = tensor.width, tensor.item
    made = like(tape, tensor)
    rows = [tape.born(tensor.rows, 1, FP32) for _ in range(2)]
    saved = tape.keep(tensor, *rows)
    into, leaves, weight_item = tensor.edge, (scale.edge, offset.edge), scale.item

    def run(_: Any, gradient: Tensor) -> list[Any]:
        first = tape.born(gradient.rows, width, item) if into else None
        return [first, *(_gradient(tape, leaf, (width, weight_item)) for leaf in leaves)]

    return tape.node(made, (into, *leaves), saved, run)  # type: ignore[no-any-return]


def cross_entropy(tape: Tape, logits: Tensor) -> Tensor:
    """`cross_entropy` of fp32 logits: log_softmax, whose result is saved, and the negative log-likelihood."""
    rows, width = logits.rows, logits.width
    scores = like(tape, logits)
    saved = tape.keep(scores)
    del scores
    middle = Tensor(rows, width, FP32, None)
    tape.node(middle, (logits.edge,), saved, lambda _, gradient: [like(tape, gradient)])
    made = tape.born((1, 0), 1, FP32)
    return tape.node(made, (middle.edge,), None, lambda *_: [tape.born(rows, width, FP32)])  # type: ignore[no-any-return]
