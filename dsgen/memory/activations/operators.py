"""PyTorch's operators on a tape: what each makes, saves for backward, and makes while its backward runs.

Source: tools/autograd/derivatives.yaml and FunctionsManual.cpp of PyTorch 2.13; a node makes its gradients in the order
of the names in that file (of `mul`: other before self), and hands them on in the order of its inputs.
"""

from __future__ import annotations

from typing import Any

from dsgen.memory.activations.moments import Size
from dsgen.memory.activations.tape import GRADIENTS, Fitted, Leaf, Tape, Tensor

__all__ = [
    "FP32",
    "INDEX",
    "MASK",
    "add",
    "cast",
    "cat",
    "clone",
    "dropout",
    "embedding",
    "gelu",
    "in_place",
    "index",
    "like",
    "masked",
    "mean",
    "mul",
    "neg",
    "part",
    "picked",
    "power",
    "relu",
    "rsqrt",
    "scaled",
    "silu",
    "softmax",
    "split",
    "sub",
    "tanh",
    "transposed",
    "view",
    "weight",
]

FP32 = 4  # bytes
INDEX = 8  # bytes of an int64
MASK = 1  # bytes of a bool


def weight(elements: int, item: int, trained: bool) -> Tensor:
    """A weight: no bytes here, and a gradient where it is trained."""
    return Tensor((1, 0), elements, item, None, Leaf(elements, item) if trained else None)


def like(tape: Tape, tensor: Tensor, item: int | None = None) -> Tensor:
    """A new tensor of the same shape."""
    return tape.born(tensor.rows, tensor.width, item or tensor.item)


def view(tensor: Tensor, rows: Size | None = None, width: int | None = None) -> Tensor:
    """Another shape of the same storage, with the same gradient."""
    return Tensor(rows or tensor.rows, width or tensor.width, tensor.item, tensor.storage, tensor.edge)


def _simple(tape: Tape, made: Tensor, into: Tensor, saved: Any = None) -> Tensor:
    """A node whose backward makes one tensor: the gradient of its input."""
    rows, width, item = into.rows, into.width, into.item
    return tape.node(made, (into.edge,), saved, lambda *_: [tape.born(rows, width, item)])  # type: ignore[no-any-return]


def cast(tape: Tape, tensor: Tensor, item: int) -> Tensor:
    """`to(dtype)`: the same tensor where it has it already."""
    return tensor if tensor.item == item else _simple(tape, like(tape, tensor, item), tensor)


def clone(tape: Tape, tensor: Tensor) -> Tensor:
    """`contiguous()` or `reshape` of a tensor in another order: a copy; the gradient goes on as it is."""
    made = like(tape, tensor)
    return tape.node(made, (tensor.edge,), None, lambda _, gradient: [gradient])  # type: ignore[no-any-return]


def add(tape: Tape, one: Tensor, other: Tensor) -> Tensor:
    """`one + other`: the gradient goes on to both, summed or cast where they are smaller."""
    big = one if _elements(one) >= _elements(other) else other
    made = tape.born(big.rows, big.width, max(one.item, other.item))
    shapes = [(tensor.rows, tensor.width, tensor.item, tensor.edge) for tensor in (one, other)]

    def run(_: Any, gradient: Tensor) -> list[Any]:
        return [Fitted(gradient, rows, width, item) if edge else None for rows, width, item, edge in shapes]

    return tape.node(made, (one.edge, other.edge), None, run)  # type: ignore[no-any-return]


def _elements(tensor: Tensor) -> tuple[int, int]:
    return tensor.rows[1] * tensor.width, tensor.rows[0] * tensor.width


def mul(tape: Tape, one: Tensor, other: Tensor) -> Tensor:
    """`one * other`: each is saved where the other asks for a gradient; the smaller one is broadcast."""
    saved = tape.keep(one if other.edge else None, other if one.edge else None)
    big = one if _elements(one) >= _elements(other) else other
    made = tape.born(big.rows, big.width, max(one.item, other.item))
    shapes = [(tensor.rows, tensor.width, tensor.item, tensor.edge) for tensor in (other, one)]

    def run(_: Any, gradient: Tensor) -> list[Any]:
        found = [
            Fitted(like(tape, gradient), rows, width, item) if edge else None for rows, width, item, edge in shapes
        ]
        found.reverse()
        return found

    return tape.node(made, (one.edge, other.edge), saved, run)  # type: ignore[no-any-return]


def scaled(tape: Tape, tensor: Tensor) -> Tensor:
    """`tensor * number`, or `/ number`."""
    return _simple(tape, like(tape, tensor), tensor)


def power(tape: Tape, tensor: Tensor) -> Tensor:
    """`tensor.pow(n)`; backward: `grad * (n * tensor.pow(n - 1))`."""
    saved = tape.keep(tensor)
    made = like(tape, tensor)

    def run(_: Any, gradient: Tensor) -> list[Any]:
        raised = like(tape, gradient)
        multiplied = like(tape, gradient)
        found = [like(tape, gradient)]
        del multiplied, raised
        return found

    return tape.node(made, (tensor.edge,), saved, run)  # type: ignore[no-any-return]


def mean(tape: Tape, tensor: Tensor) -> Tensor:
    """`tensor.mean(-1, keepdim=True)`; backward: the gradient spread and divided."""
    return _simple(tape, tape.born(tensor.rows, 1, tensor.item), tensor)


def rsqrt(tape: Tape, tensor: Tensor) -> Tensor:
    """`torch.rsqrt(tensor + eps)`, whose result is saved."""
    raised = like(tape, tensor)
    made = like(tape, raised)
    del raised
    saved = tape.keep(made)

    def run(_: Any, gradient: Tensor) -> list[Any]:
        cubed = like(tape, gradient)
        return [like(tape, cubed)]

    return tape.node(made, (tensor.edge,), saved, run)  # type: ignore[no-any-return]


def neg(tape: Tape, tensor: Tensor) -> Tensor:
    """`-tensor`."""
    return _simple(tape, like(tape, tensor), tensor)


def part(tape: Tape, tensor: Tensor, width: int) -> Tensor:
    """`tensor[..., a:a + width]`: a view; backward makes a whole tensor of zeros around the gradient."""
    return _simple(tape, Tensor(tensor.rows, width, tensor.item, tensor.storage), tensor)


def split(tape: Tape, tensor: Tensor, *widths: int) -> list[Tensor]:
    """`split` or `chunk` along the last dimension: views; backward joins the gradients."""
    rows, width, item = tensor.rows, tensor.width, tensor.item
    made = [Tensor(rows, one, item, tensor.storage) for one in widths]

    def run(_: Any, *gradients: Tensor) -> list[Any]:
        missing = [tape.born(rows, one, item) for one, given in zip(widths, gradients, strict=True) if given is None]
        found = [tape.born(rows, width, item)]
        del missing
        return found

    return tape.node(made, (tensor.edge,), None, run)  # type: ignore[no-any-return]


def cat(tape: Tape, *tensors: Tensor) -> Tensor:
    """`torch.cat(tensors, dim=-1)`; backward cuts views out of the gradient."""
    widths = [tensor.width for tensor in tensors]
    made = tape.born(tensors[0].rows, sum(widths), tensors[0].item)

    def run(_: Any, gradient: Tensor) -> list[Any]:
        return [Tensor(gradient.rows, width, gradient.item, gradient.storage) for width in widths]

    return tape.node(made, [tensor.edge for tensor in tensors], None, run)  # type: ignore[no-any-return]


def transposed(tape: Tape, tensor: Tensor) -> Tensor:
    """`tensor.view(...).transpose(1, 2)`: a view; a gradient that is laid out anew is copied back to the old layout."""
    return _simple(tape, Tensor(tensor.rows, tensor.width, tensor.item, tensor.storage), tensor)


def silu(tape: Tape, tensor: Tensor) -> Tensor:
    """SiLU: the input is saved."""
    saved = tape.keep(tensor)
    return _simple(tape, like(tape, tensor), tensor, saved)


gelu = silu  # GELU, by erf or by tanh, as one operator: the input is saved too


def relu(tape: Tape, tensor: Tensor) -> Tensor:
    """ReLU and tanh save their result."""
    made = like(tape, tensor)
    return _simple(tape, made, tensor, tape.keep(made))


tanh = relu


def softmax(tape: Tape, tensor: Tensor) -> Tensor:
    """Softmax saves its result."""
    return relu(tape, tensor)


def dropout(tape: Tape, tensor: Tensor, active: bool) -> Tensor:
    """`native_dropout`, which keeps a mask; with a probability of 0 nothing happens."""
    if not active:
        return tensor
    made = like(tape, tensor)
    saved = tape.keep(like(tape, tensor, MASK))
    return _simple(tape, made, tensor, saved)


def embedding(tape: Tape, rows: Size, kernel: Tensor, width: int) -> Tensor:
    """`nn.functional.embedding`; the ids, which it saves, are the caller's."""
    made = tape.born(rows, width, kernel.item)
    leaf = kernel.edge

    def run(*_: Any) -> list[Any]:
        return [tape.born((1, 0), leaf.elements, leaf.item, GRADIENTS)]

    return tape.node(made, (leaf,), None, run)  # type: ignore[no-any-return]


def index(tape: Tape, tensor: Tensor, rows: Size, width: int = 0, ids: Tensor | None = None) -> Tensor:
    """`tensor[ids]`: a part picked; backward puts the gradient into zeros, a copy of them. The ids are saved."""
    before, whole, item = tensor.rows, tensor.width, tensor.item
    saved = tape.keep(ids)
    made = tape.born(rows, width or whole, item)

    def run(*_: Any) -> list[Any]:
        zeros = tape.born(before, whole, item)
        found = [tape.born(before, whole, item)]
        del zeros
        return found

    return tape.node(made, (tensor.edge,), saved, run)  # type: ignore[no-any-return]


def masked(tape: Tape, tensor: Tensor) -> Tensor:
    """`masked_fill(~mask.bool(), number)`, whose mask is saved."""
    saved = tape.keep(like(tape, tensor, MASK))
    return _simple(tape, like(tape, tensor), tensor, saved)


def sub(tape: Tape, one: Tensor, other: Tensor) -> Tensor:
    """`one - other`: the other's gradient is turned, and summed where it is smaller."""
    made = like(tape, one)
    rows, width, item, wanted = other.rows, other.width, other.item, other.edge

    def run(_: Any, gradient: Tensor) -> list[Any]:
        return [gradient, Fitted(like(tape, gradient), rows, width, item) if wanted else None]

    return tape.node(made, (one.edge, wanted), None, run)  # type: ignore[no-any-return]


def picked(tape: Tape, tensor: Tensor, rows: Size, width: int, item: int) -> tuple[Tensor, Tensor]:
    """`topk` or `max`: values and saved int64 indices; backward scatters the gradient into zeros, a copy of them."""
    whole, inner, size = tensor.rows, tensor.width, tensor.item
    values = tape.born(rows, width, item)
    ids = tape.born(rows, width, INDEX)
    saved = tape.keep(ids)

    def run(*_: Any) -> list[Any]:
        zeros = tape.born(whole, inner, size)
        found = [tape.born(whole, inner, size)]
        del zeros
        return found

    return tape.node(values, (tensor.edge,), saved, run), ids


def in_place(tape: Tape, tensor: Tensor, *others: Tensor) -> Tensor:
    """`tensor += other`, or `tensor /= number`, whose gradient is made anew."""
    made = view(tensor)
    if others:
        edges = (tensor.edge, *(other.edge for other in others))
        return tape.node(made, edges, None, lambda _, gradient: [gradient] * len(edges))  # type: ignore[no-any-return]
    return _simple(tape, made, tensor)
