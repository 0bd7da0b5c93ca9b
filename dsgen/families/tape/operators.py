"""PyTorch's operators on a tape: what each makes, saves for backward, and makes while its backward runs.

Source: tools/autograd/derivatives.yaml and FunctionsManual.cpp of PyTorch 2.13; a node makes its gradients in the order
of the names in that file (of `mul`: other before self), and hands them on in the order of its inputs.
"""

from __future__ import annotations

from typing import Any

from dsgen.families.tape.graph import COPY, EMBEDDING, NORM, SOFTMAX, STREAM
from dsgen.families.tape.moments import Size
from dsgen.families.tape.tape import GRADIENTS, Fitted, Leaf, Tape, Tensor

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
    "gradient_of",
    "in_place",
    "index",
    "masked",
    "mean",
    "mul",
    "neg",
    "one_plus",
    "part",
    "picked",
    "power",
    "raised_weight",
    "relu",
    "rsqrt",
    "safe_softmax",
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


def view(tensor: Tensor, rows: Size | None = None, width: int | None = None) -> Tensor:
    """Another shape of the same storage, with the same gradient."""
    return Tensor(rows or tensor.rows, width or tensor.width, tensor.item, tensor.storage, tensor.edge)


def _simple(
    tape: Tape, made: Tensor, into: Tensor, saved: Any = None, sort: str = STREAM, read: Tensor | None = None
) -> Tensor:
    """A node whose backward makes one tensor, the gradient of its input; `read` is of the size of what it reads too."""

    def back(gradient: Tensor) -> list[Any]:
        result = tape.like(into)
        tape.moves(sort, gradient, read, result)
        return [result]

    return tape.node(made, (into,), saved, back)  # type: ignore[no-any-return]


def _passing(tape: Tape, made: Tensor, into: Tensor) -> Tensor:
    """A node whose gradient goes on as it is."""
    return tape.node(made, (into,), None, lambda gradient: [gradient])  # type: ignore[no-any-return]


def _made(tape: Tape, tensor: Tensor, item: int | None = None, sort: str = STREAM) -> Tensor:
    """A new tensor of the same shape, which one kernel makes of the other."""
    made = tape.like(tensor, item)
    tape.moves(sort, tensor, made)
    return made


def cast(tape: Tape, tensor: Tensor, item: int) -> Tensor:
    """`to(dtype)`: the same tensor where it has it already."""
    return tensor if tensor.item == item else _simple(tape, _made(tape, tensor, item), tensor)


def clone(tape: Tape, tensor: Tensor) -> Tensor:
    """`contiguous()` or `reshape` of a tensor in another order: a copy; the gradient goes on as it is."""
    return _passing(tape, _made(tape, tensor, sort=COPY), tensor)


def one_plus(tape: Tape, tensor: Tensor) -> Tensor:
    """`tensor + number`."""
    return _passing(tape, _made(tape, tensor), tensor)


def raised_weight(tape: Tape, tensor: Tensor) -> Tensor:
    """`1.0 + weight`, whose gradient takes a place of its own but no work."""
    return tape.node(_made(tape, tensor), (tensor,), None, lambda _: [tape.like(tensor)])  # type: ignore[no-any-return]


def add(tape: Tape, one: Tensor, other: Tensor) -> Tensor:
    """`one + other`: the gradient goes on to both, summed or cast where they are smaller."""
    made = _broadcast(tape, one, other)

    def back(gradient: Tensor) -> list[Any]:
        return [Fitted(gradient, into) if into.edge else None for into in (one, other)]

    return tape.node(made, (one, other), None, back)  # type: ignore[no-any-return]


def _broadcast(tape: Tape, one: Tensor, other: Tensor) -> Tensor:
    big = one if _elements(one) >= _elements(other) else other
    made = tape.make(big.rows, big.width, max(one.item, other.item))
    tape.moves(STREAM, one, other, made)
    return made


def _elements(tensor: Tensor) -> tuple[int, int]:
    return tensor.rows[1] * tensor.width, tensor.rows[0] * tensor.width


def mul(tape: Tape, one: Tensor, other: Tensor) -> Tensor:
    """`one * other`: each is saved where the other asks for a gradient; the smaller one is broadcast."""
    saved = tape.keep(one if other.edge else None, other if one.edge else None)
    made = _broadcast(tape, one, other)

    def back(gradient: Tensor) -> list[Any]:
        second = Fitted(_product(tape, gradient, one), other) if other.edge else None
        return [Fitted(_product(tape, gradient, other), one) if one.edge else None, second]

    return tape.node(made, (one, other), saved, back)  # type: ignore[no-any-return]


def _product(tape: Tape, gradient: Tensor, other: Tensor) -> Tensor:
    made = tape.like(gradient)
    tape.moves(STREAM, gradient, other, made)
    return made


def scaled(tape: Tape, tensor: Tensor) -> Tensor:
    """`tensor * number`, or `/ number`."""
    return _simple(tape, _made(tape, tensor), tensor)


def power(tape: Tape, tensor: Tensor) -> Tensor:
    """`tensor.pow(n)`; backward: `grad * (n * tensor.pow(n - 1))`."""
    saved = tape.keep(tensor)

    def back(gradient: Tensor) -> list[Any]:
        raised, multiplied, made = tape.like(gradient), tape.like(gradient), tape.like(gradient)
        tape.moves(STREAM, tensor, raised)
        tape.moves(STREAM, raised, multiplied)
        tape.moves(STREAM, gradient, multiplied, made)
        tape.hold(raised, multiplied)
        return [made]

    return tape.node(_made(tape, tensor), (tensor,), saved, back)  # type: ignore[no-any-return]


def mean(tape: Tape, tensor: Tensor) -> Tensor:
    """`tensor.mean(-1, keepdim=True)`; backward: the gradient spread and divided."""
    made = tape.make(tensor.rows, 1, tensor.item)
    tape.moves(NORM, tensor, made)

    def back(gradient: Tensor) -> list[Any]:
        result = tape.like(tensor)
        tape.dispatches(views=1)
        tape.moves(STREAM, gradient, result)
        return [result]

    return tape.node(made, (tensor,), None, back)  # type: ignore[no-any-return]


def rsqrt(tape: Tape, tensor: Tensor) -> Tensor:
    """`torch.rsqrt(tensor + eps)`, whose result is saved."""
    raised, made = tape.like(tensor), tape.like(tensor)
    tape.moves(STREAM, tensor, raised)
    tape.moves(STREAM, raised, made)
    tape.hold(raised)

    def back(gradient: Tensor) -> list[Any]:
        cubed, result = tape.like(gradient), tape.like(gradient)
        tape.moves(STREAM, gradient, cubed)
        tape.moves(STREAM, gradient, cubed)
        tape.moves(STREAM, gradient, cubed, result)
        tape.hold(cubed)
        return [result]

    return tape.node(made, (tensor,), tape.keep(made), back)  # type: ignore[no-any-return]


def neg(tape: Tape, tensor: Tensor) -> Tensor:
    """`-tensor`."""
    return _simple(tape, _made(tape, tensor), tensor)


def part(tape: Tape, tensor: Tensor, width: int) -> Tensor:
    """`tensor[..., a:a + width]`: a view; backward makes a whole tensor of zeros around the gradient."""
    tape.dispatches(views=1)

    def back(gradient: Tensor) -> list[Any]:
        whole = tape.like(tensor)
        tape.moves(COPY, whole)
        tape.moves(COPY, gradient, gradient, operators=0)
        return [whole]

    return tape.node(Tensor(tensor.rows, width, tensor.item, tensor.storage), (tensor,), None, back)  # type: ignore[no-any-return]


def split(tape: Tape, tensor: Tensor, *widths: int) -> list[Tensor]:
    """`split` or `chunk` along the last dimension: views; backward joins the gradients."""
    rows, item = tensor.rows, tensor.item
    made = [Tensor(rows, one, item, tensor.storage) for one in widths]

    def back(*gradients: Tensor | None) -> list[Any]:
        missing = [tape.make(rows, one, item) for one, given in zip(widths, gradients, strict=True) if given is None]
        for one in missing:
            tape.moves(COPY, one)
        whole = tape.like(tensor)
        tape.moves(COPY, whole, whole)
        tape.hold(*missing)
        return [whole]

    tape.dispatches(views=1)

    return tape.node(made, (tensor,), None, back)  # type: ignore[no-any-return]


def cat(tape: Tape, *tensors: Tensor) -> Tensor:
    """`torch.cat(tensors, dim=-1)`; backward cuts views out of the gradient."""
    widths = [tensor.width for tensor in tensors]
    made = tape.make(tensors[0].rows, sum(widths), tensors[0].item)
    tape.moves(COPY, *tensors, made)

    def back(gradient: Tensor) -> list[Any]:
        tape.dispatches(views=len(widths))
        return [Tensor(gradient.rows, width, gradient.item, gradient.storage) for width in widths]

    return tape.node(made, tensors, None, back)  # type: ignore[no-any-return]


def transposed(tape: Tape, tensor: Tensor) -> Tensor:
    """`tensor.view(...).transpose(1, 2)`: a view; a gradient that is laid out anew is copied back to the old layout."""
    tape.dispatches(views=2)

    def back(gradient: Tensor) -> list[Any]:
        result = tape.like(tensor)
        tape.dispatches(views=2)
        tape.moves(COPY, gradient, result)
        return [result]

    return tape.node(Tensor(tensor.rows, tensor.width, tensor.item, tensor.storage), (tensor,), None, back)  # type: ignore[no-any-return]


def silu(tape: Tape, tensor: Tensor) -> Tensor:
    """SiLU: the input is saved."""
    saved = tape.keep(tensor)
    return _simple(tape, _made(tape, tensor), tensor, saved, read=tensor)


gelu = silu  # GELU, by erf or by tanh, as one operator: the input is saved too


def relu(tape: Tape, tensor: Tensor) -> Tensor:
    """ReLU and tanh save their result."""
    return _saving_result(tape, tensor, STREAM)


def _saving_result(tape: Tape, tensor: Tensor, sort: str) -> Tensor:
    made = _made(tape, tensor, sort=sort)
    return _simple(tape, made, tensor, tape.keep(made), sort, tensor)


tanh = relu


def softmax(tape: Tape, tensor: Tensor) -> Tensor:
    """Softmax saves its result."""
    return _saving_result(tape, tensor, SOFTMAX)


def safe_softmax(tape: Tape, tensor: Tensor) -> Tensor:
    """torch's `_safe_softmax`, which saves its result: rows that see nothing are 0 (ATen/native/SoftMax.cpp)."""
    weights, nothing, rows = tape.like(tensor), tape.like(tensor, MASK), tape.make(tensor.rows, 1, MASK)
    tape.moves(SOFTMAX, tensor, weights)
    tape.moves(STREAM, tensor, nothing)
    tape.moves(SOFTMAX, nothing, rows)
    tape.dispatches(operators=1)
    made = tape.like(tensor)
    tape.moves(STREAM, rows, weights, made)
    tape.hold(weights, nothing)
    return _simple(tape, made, tensor, tape.keep(made), SOFTMAX, tensor)


def dropout(tape: Tape, tensor: Tensor, active: bool) -> Tensor:
    """`native_dropout`, which keeps a mask; with a probability of 0 nothing happens."""
    if not active:
        return tensor
    made, mask = tape.like(tensor), tape.like(tensor, MASK)
    tape.moves(STREAM, tensor, made, mask)
    return _simple(tape, made, tensor, tape.keep(mask), read=mask)


def embedding(tape: Tape, rows: Size, kernel: Tensor, width: int) -> Tensor:
    """`nn.functional.embedding`; the ids, which it saves, are the caller's."""
    made = tape.make(rows, width, kernel.item)
    tape.moves(EMBEDDING, made, made)

    def back(gradient: Tensor) -> list[Any]:
        result = gradient_of(tape, kernel)
        tape.moves(EMBEDDING, gradient, result)
        return [result]

    return tape.node(made, (kernel,), None, back)  # type: ignore[no-any-return]


def gradient_of(tape: Tape, kernel: Tensor) -> Tensor:
    """The gradient of a weight, or of a copy of one in another type."""
    return tape.make((1, 0), kernel.width, kernel.item, GRADIENTS if isinstance(kernel.edge, Leaf) else None)


def index(tape: Tape, tensor: Tensor, rows: Size, width: int = 0, ids: Tensor | None = None) -> Tensor:
    """`tensor[ids]`: a part picked; backward puts the gradient into zeros, a copy of them. The ids are saved."""
    saved = tape.keep(ids)
    made = tape.make(rows, width or tensor.width, tensor.item)
    tape.moves(EMBEDDING, made, ids, made)
    tape.hold(ids)
    return tape.node(made, (tensor,), saved, lambda gradient: _scattered(tape, gradient, tensor))  # type: ignore[no-any-return]


def _scattered(tape: Tape, gradient: Tensor, into: Tensor) -> list[Any]:
    """Zeros, and a copy of them into which the gradient is put."""
    zeros, made = tape.like(into), tape.like(into)
    tape.moves(COPY, zeros)
    tape.moves(COPY, zeros, made)
    tape.moves(EMBEDDING, gradient, gradient, operators=0)
    tape.hold(zeros)
    return [made]


def masked(tape: Tape, tensor: Tensor) -> Tensor:
    """`masked_fill(~mask.bool(), number)`, whose mask is saved."""
    mask = tape.like(tensor, MASK)
    saved = tape.keep(mask)
    made = tape.like(tensor)
    tape.moves(STREAM, mask, mask)
    tape.moves(STREAM, tensor, mask, made)
    tape.hold(mask)
    return _simple(tape, made, tensor, saved, read=mask)


def sub(tape: Tape, one: Tensor, other: Tensor) -> Tensor:
    """`one - other`: the other's gradient is turned, and summed where it is smaller."""

    def back(gradient: Tensor) -> list[Any]:
        return [gradient, Fitted(_made(tape, gradient), other) if other.edge else None]

    made = tape.like(one)
    tape.moves(STREAM, one, other, made)
    return tape.node(made, (one, other), None, back)  # type: ignore[no-any-return]


def picked(tape: Tape, tensor: Tensor, rows: Size, width: int, item: int) -> tuple[Tensor, Tensor]:
    """`topk` or `max`: values and saved int64 indices; backward scatters the gradient into zeros, a copy of them."""
    values, ids = tape.make(rows, width, item), tape.make(rows, width, INDEX)
    tape.moves(NORM, tensor, values, ids)
    tape.hold(values)
    saved = tape.keep(ids)

    def back(gradient: Tensor) -> list[Any]:
        zeros, result = tape.like(tensor), tape.like(tensor)
        tape.moves(COPY, zeros)
        tape.moves(EMBEDDING, zeros, gradient, ids, result)
        tape.hold(zeros)
        return [result]

    return tape.node(values, (tensor,), saved, back), ids


def in_place(tape: Tape, tensor: Tensor, *others: Tensor) -> Tensor:
    """`tensor += other`, or `tensor /= number`, whose gradient is made anew."""
    made = view(tensor)
    tape.moves(STREAM, tensor, *others, made)
    if not others:
        return _simple(tape, made, tensor)
    inputs = (tensor, *others)
    return tape.node(made, inputs, None, lambda gradient: [gradient] * len(inputs))  # type: ignore[no-any-return]
