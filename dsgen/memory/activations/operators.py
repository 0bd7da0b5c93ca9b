"""PyTorch's operators on a tape: what each makes, saves for backward, and makes while its backward runs.

Source: tools/autograd/derivatives.yaml and FunctionsManual.cpp of PyTorch 2.13; the order in which a node makes its
gradients is that of the names in that file (of `mm`: mat2 before self; of `addmm`: mat1, mat2, self).
"""

from __future__ import annotations

from typing import Any

from dsgen.memory.activations.tape import GRADIENTS, Leaf, Size, Summed, Tape, Tensor

__all__ = [
    "add",
    "attend",
    "cast",
    "cat",
    "cross_entropy",
    "embedding",
    "linear",
    "mean",
    "mul",
    "neg",
    "part",
    "power",
    "rsqrt",
    "silu",
    "transposed",
    "weight",
]

FP32 = 4  # bytes
FLASH_ROWS = 128  # rows to which FlashAttention 2 rounds its backward's work space (csrc/flash_attn/flash_api.cpp)
FLASH_HEAD = 32  # elements to which it rounds a head there


def weight(elements: int, item: int, trained: bool) -> Tensor:
    """A weight: no bytes here, and a gradient where it is trained."""
    return Tensor((1, 0), elements, item, None, Leaf(elements, item) if trained else None)


def _like(tape: Tape, tensor: Tensor, item: int | None = None) -> Tensor:
    return tape.born(tensor.rows, tensor.width, item or tensor.item)


def _gradient(tape: Tape, leaf: Any) -> Tensor:
    return tape.born((1, 0), leaf.elements, leaf.item, GRADIENTS)


def view(tensor: Tensor, rows: Size | None = None, width: int | None = None) -> Tensor:
    """Another shape of the same storage, with the same gradient."""
    return Tensor(rows or tensor.rows, width or tensor.width, tensor.item, tensor.storage, tensor.edge)


def linear(tape: Tape, tensor: Tensor, kernel: Tensor, out: int, bias: Tensor | None = None) -> Tensor:
    """`mm`, or `addmm` where there is a bias. The input is saved for the weight's gradient only."""
    saved = tape.keep(tensor if kernel.edge else None, kernel if tensor.edge else None)
    made = tape.born(tensor.rows, out, tensor.item)
    width, item, leaf, into = tensor.width, tensor.item, kernel.edge, tensor.edge
    if bias is None:

        def run(_: Any, gradient: Tensor) -> list[Any]:
            first = _gradient(tape, leaf) if leaf else None
            second = tape.born(gradient.rows, width, item) if into else None
            return [first, second]

        return tape.node(made, (leaf, into), saved, run)

    def run_with_bias(_: Any, gradient: Tensor) -> list[Any]:
        first = tape.born(gradient.rows, width, item) if into else None
        second = _gradient(tape, leaf) if leaf else None
        third = Summed(gradient, (1, 0), out) if bias_leaf else None
        return [first, second, third]

    bias_leaf = bias.edge
    return tape.node(made, (into, leaf, bias_leaf), saved, run_with_bias)


def cast(tape: Tape, tensor: Tensor, item: int) -> Tensor:
    """`to(dtype)`: the same tensor where it has it already."""
    if tensor.item == item:
        return tensor
    before = tensor.item
    made = _like(tape, tensor, item)
    return tape.node(made, (tensor.edge,), None, lambda _, gradient: [_like(tape, gradient, before)])


def add(tape: Tape, one: Tensor, other: Tensor) -> Tensor:
    """`one + other`: the gradient goes on to both as it is."""
    made = tape.born(one.rows, one.width, max(one.item, other.item))
    items = (one.item, other.item)

    def run(_: Any, gradient: Tensor) -> list[Any]:
        # A sum of different types is made in the wider one; each gradient is cast back.
        return [gradient if gradient.item == item else _like(tape, gradient, item) for item in items]

    return tape.node(made, (one.edge, other.edge), None, run)


def mul(tape: Tape, one: Tensor, other: Tensor) -> Tensor:
    """`one * other`: each is saved where the other asks for a gradient; the smaller one is broadcast."""
    saved = tape.keep(other if one.edge else None, one if other.edge else None)
    big = (
        one
        if one.rows[0] * one.width + one.rows[1] * one.width
        >= other.rows[0] * other.width + other.rows[1] * other.width
        else other
    )
    made = tape.born(big.rows, big.width, max(one.item, other.item))
    shapes = tuple(
        (tensor.rows, tensor.width, tensor.item, tensor is big or _same(tensor, big)) for tensor in (other, one)
    )
    wanted = (other.edge, one.edge)

    def run(_: Any, gradient: Tensor) -> list[Any]:
        found: list[Any] = []
        for edge, (rows, width, item, whole) in zip(wanted, shapes, strict=True):
            if edge is None:
                found.append(None)
                continue
            product = _like(tape, gradient, item)
            found.append(product if whole else Summed(product, rows, width))
            del product
        return found

    return tape.node(made, wanted, saved, run)


def _same(one: Tensor, other: Tensor) -> bool:
    return one.rows == other.rows and one.width == other.width


def power(tape: Tape, tensor: Tensor) -> Tensor:
    """`tensor.pow(2)`; backward: `grad * (2 * tensor.pow(1))`."""
    saved = tape.keep(tensor)
    made = _like(tape, tensor)

    def run(_: Any, gradient: Tensor) -> list[Any]:
        raised = _like(tape, gradient)
        doubled = _like(tape, gradient)
        found = [_like(tape, gradient)]
        del doubled, raised
        return found

    return tape.node(made, (tensor.edge,), saved, run)


def mean(tape: Tape, tensor: Tensor) -> Tensor:
    """`tensor.mean(-1, keepdim=True)`; backward: the gradient spread and divided."""
    rows, width, item = tensor.rows, tensor.width, tensor.item
    made = tape.born(rows, 1, item)
    return tape.node(made, (tensor.edge,), None, lambda _, gradient: [tape.born(rows, width, item)])


def rsqrt(tape: Tape, tensor: Tensor) -> Tensor:
    """`torch.rsqrt(tensor + eps)`, whose result is saved."""
    raised = _like(tape, tensor)
    made = _like(tape, raised)
    del raised
    saved = tape.keep(made)

    def run(_: Any, gradient: Tensor) -> list[Any]:
        cubed = _like(tape, gradient)
        return [_like(tape, cubed)]

    return tape.node(made, (tensor.edge,), saved, run)


def neg(tape: Tape, tensor: Tensor) -> Tensor:
    """`-tensor`."""
    made = _like(tape, tensor)
    return tape.node(made, (tensor.edge,), None, lambda _, gradient: [_like(tape, gradient)])


def part(tape: Tape, tensor: Tensor, width: int) -> Tensor:
    """`tensor[..., :width]`: a view; backward makes a whole tensor of zeros around the gradient."""
    whole = tensor.width
    made = view(tensor, width=width)
    return tape.node(made, (tensor.edge,), None, lambda _, gradient: [tape.born(gradient.rows, whole, gradient.item)])


def cat(tape: Tape, *tensors: Tensor) -> Tensor:
    """`torch.cat(tensors, dim=-1)`; backward cuts views out of the gradient."""
    widths = tuple(tensor.width for tensor in tensors)
    made = tape.born(tensors[0].rows, sum(widths), tensors[0].item)
    edges = tuple(tensor.edge for tensor in tensors)
    return tape.node(
        made,
        edges,
        None,
        lambda _, gradient: [Tensor(gradient.rows, w, gradient.item, gradient.storage) for w in widths],
    )


def transposed(tape: Tape, tensor: Tensor) -> Tensor:
    """`tensor.view(...).transpose(1, 2)`: a view; a gradient that is laid out anew is copied back to the old layout."""
    made = view(tensor)
    return tape.node(made, (tensor.edge,), None, lambda _, gradient: [_like(tape, gradient)])


def silu(tape: Tape, tensor: Tensor) -> Tensor:
    """SiLU: the input is saved."""
    saved = tape.keep(tensor)
    made = _like(tape, tensor)
    return tape.node(made, (tensor.edge,), saved, lambda _, gradient: [_like(tape, gradient)])


def embedding(tape: Tape, rows: Size, kernel: Tensor, width: int) -> Tensor:
    """`nn.functional.embedding`; the ids, which it saves, are the caller's."""
    made = tape.born(rows, width, kernel.item)
    leaf = kernel.edge
    return tape.node(made, (leaf,), None, lambda _, gradient: [_gradient(tape, leaf)])


def attend(tape: Tape, query: Tensor, key: Tensor, value: Tensor, heads: int, kv_heads: int) -> Tensor:
    """FlashAttention 2, which torch's fused kernels of scaled_dot_product_attention equal in what they keep.

    Forward saves query, key, value, output and an fp32 log-sum-exp of every row; backward makes three gradients, an
    fp32 sum for every row, an fp32 gradient of the query, and for grouped queries keys' and values' expanded gradients.
    """
    size = query.width // heads
    made = tape.born(query.rows, value.width // kv_heads * heads, query.item)
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

    return tape.node(made, (query.edge, key.edge, value.edge), saved, run)


def cross_entropy(tape: Tape, logits: Tensor) -> Tensor:
    """`cross_entropy` of fp32 logits: log_softmax, whose result is saved, and the negative log-likelihood."""
    scores = _like(tape, logits)
    saved = tape.keep(scores)
    del scores
    rows, width = logits.rows, logits.width

    def likelihood(_: Any, gradient: Tensor) -> list[Any]:
        return [tape.born(rows, width, FP32)]

    middle = tape.node(
        Tensor(rows, width, FP32, None), (logits.edge,), saved, lambda _, gradient: [_like(tape, gradient)]
    )
    made = tape.born((1, 0), 1, FP32)
    return tape.node(made, (middle.edge,), tape.keep(), likelihood)
