"""Matrix products, attention and the loss on a tape.

Source: derivatives.yaml of PyTorch 2.13 (of `mm`: mat2 before self; of `addmm`: mat1, mat2, self), and for attention
flash_attn_interface.py and flash_api.cpp of FlashAttention 2.
"""

from __future__ import annotations

from typing import Any

from dsgen.families.tape.graph import (
    BACKWARD_PASS,
    COPY,
    DEQUANTIZATION,
    FORWARD_PASS,
    NORM,
    SOFTMAX,
    STREAM,
    Storage,
)
from dsgen.families.tape.moments import Size
from dsgen.families.tape.operators import FP32, INDEX, gradient_of
from dsgen.families.tape.tape import TEMPORARIES, Fitted, Tape, Tensor

__all__ = [
    "bmm",
    "cross_entropy",
    "dequantized_linear",
    "flash",
    "grouped",
    "layer_norm",
    "linear",
    "pieces",
    "sharded_cross_entropy",
    "without_last",
]

QUANTIZED_BLOCK = 64  # elements of a 4-bit weight that share a scale (bitsandbytes, blocksize)
FLASH_ROWS = 128  # rows to which FlashAttention 2 rounds its backward's work space (csrc/flash_attn/flash_api.cpp)
FLASH_HEAD = 32  # elements to which it rounds a head there


def linear(
    tape: Tape,
    tensor: Tensor,
    kernel: Tensor,
    out: int,
    bias: Tensor | None = None,
    zero3: bool = False,
    groups: int = 1,
    turned: bool = False,
) -> Tensor:
    """`mm`, or `addmm` where there is a bias; of rows that are sorted into `groups`, each times a matrix of its own.

    `turned` is a weight that lies as (inputs, outputs), and whose gradient is made so.

    The input is saved for the weight's gradient only, but by the linear layer of zero.Init always
    (deepspeed/runtime/zero/linear.py, LinearFunctionForZeroStage3).
    """
    made = tape.make(tensor.rows, out, tensor.item) if tape.told else None  # zero.Init's saves when it is done
    saved = tape.keep(tensor if kernel.edge or (zero3 and tensor.edge) else None, kernel if tensor.edge else None)
    made = made or tape.make(tensor.rows, out, tensor.item)
    # Views: of the weight, of the tokens as one row each, and back; those of a grouped product are so already.
    around = (2 if turned else 3) if groups == 1 else (0 if turned else 1)
    tape.multiplies(tensor.rows, (out, 0), (tensor.width, 0), tensor.item, groups=groups, views=around)

    def back(gradient: Tensor) -> list[Any]:
        first = _input_gradient(tape, gradient, tensor, groups, turned) if tape.told else None
        second = _weight_gradient(tape, gradient, tensor, kernel, groups, turned)
        return [first if tape.told else _input_gradient(tape, gradient, tensor, groups, turned), second]

    if bias is None:
        return tape.node(made, (tensor, kernel), saved, back)  # type: ignore[no-any-return]

    def back_with_bias(gradient: Tensor) -> list[Any]:
        first = _input_gradient(tape, gradient, tensor, groups, turned)
        second = _weight_gradient(tape, gradient, tensor, kernel, groups, turned)
        third = Fitted(gradient, bias) if bias.edge else None
        return [first, second, third] if tape.told else [third, first, second]

    # zero.Init's linear layer has for its arguments the input, the weight and the bias; addmm has the bias first.
    inputs = (tensor, kernel, bias) if tape.told else (bias, tensor, kernel)
    return tape.node(made, inputs, saved, back_with_bias)  # type: ignore[no-any-return]


def _input_gradient(tape: Tape, gradient: Tensor, tensor: Tensor, groups: int, turned: bool) -> Tensor | None:
    if not tensor.edge:
        return None
    made = tape.make(gradient.rows, tensor.width, tensor.item)
    around = 1 if groups > 1 else 2 if turned else 3
    tape.multiplies(gradient.rows, (tensor.width, 0), (gradient.width, 0), tensor.item, groups=groups, views=around)
    return made


def _weight_gradient(
    tape: Tape, gradient: Tensor, tensor: Tensor, kernel: Tensor, groups: int, turned: bool
) -> Tensor | None:
    if not kernel.edge:
        return None
    made = gradient_of(tape, kernel)
    m, n = (tensor.width, gradient.width) if turned else (gradient.width, tensor.width)
    tape.multiplies((m, 0), (n, 0), gradient.rows, tensor.item, groups=groups, views=2 if turned else 3)
    return made


def dequantized_linear(tape: Tape, tensor: Tensor, out: int) -> Tensor:
    """bitsandbytes' MatMul4Bit: forward and backward each make the 16-bit weight anew; the input is not kept.

    Its scales, an fp32 number for 64 elements, live until it is made (bitsandbytes, functional.dequantize_4bit).
    """
    whole = _dequantized(tape, tensor.width * out, tensor.item)
    made = tape.make(tensor.rows, out, tensor.item)
    tape.multiplies(tensor.rows, (out, 0), (tensor.width, 0), tensor.item, views=4)
    tape.hold(whole)

    def back(gradient: Tensor) -> list[Any]:
        again = _dequantized(tape, tensor.width * out, tensor.item)
        gradient = tape.like(tensor)
        tape.multiplies(gradient.rows, (tensor.width, 0), (out, 0), tensor.item, views=2)
        tape.hold(again)
        return [gradient]

    return tape.node(made, (tensor,), None, back)  # type: ignore[no-any-return]


def _dequantized(tape: Tape, elements: int, item: int) -> Tensor:
    scales = tape.make((1, 0), -(-elements // QUANTIZED_BLOCK), FP32, TEMPORARIES)
    made = tape.make((1, 0), elements, item, TEMPORARIES)
    packed = Tensor((1, 0), -(-elements // 2), 1, None)  # two numbers a byte
    tape.moves(STREAM, scales)
    tape.moves(DEQUANTIZATION, packed, scales, made)
    tape.hold(scales)
    return made


def grouped(tape: Tape, tensor: Tensor, kernel: Tensor, out: int, experts: int, turned: bool = False) -> Tensor:
    """`grouped_mm`: rows sorted by expert, each times its expert's matrix; the gradient is that of all experts."""
    return linear(tape, tensor, kernel, out, groups=experts, turned=turned)


def bmm(
    tape: Tape, one: Tensor, other: Tensor, rows: Size, width: int, heads: int, shape: tuple[int, int, int]
) -> Tensor:
    """`torch.bmm(one, other)` with a result of the given size: of every head a product of (m, n, k), its `shape`."""
    saved = tape.keep(one if other.edge else None, other if one.edge else None)
    made = tape.make(rows, width, one.item)
    batch, item = (0, heads), one.item
    m, n, k = ((size, 0) for size in shape)
    tape.multiplies(m, n, k, item, batch=batch, views=6)

    def back(_: Tensor) -> list[Any]:
        first = second = None
        if other.edge:
            second = tape.like(other)
            tape.multiplies(k, n, m, item, batch=batch, views=3)
        if one.edge:
            first = tape.like(one)
            tape.multiplies(m, k, n, item, batch=batch, views=3)
        return [first, second]

    return tape.node(made, (one, other), saved, back)  # type: ignore[no-any-return]


def flash(
    tape: Tape,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    heads: int,
    kv_heads: int,
    apart: int = 2,
    bias: Tensor | None = None,
) -> Tensor:
    """FlashAttention 2, which torch's fused kernels of scaled_dot_product_attention equal in what they keep.

    Forward saves query, key, value, output and an fp32 log-sum-exp of every row; backward makes three gradients, an
    fp32 sum for every row, an fp32 gradient of the query, and for grouped queries expanded gradients of keys, values.
    `apart` is how many views tell heads apart that no operator has counted; a `bias` of the scores is saved too.
    """
    size = query.width // heads
    made = tape.like(query)
    saved = tape.keep(query, key, value, made, tape.make(query.rows, heads, FP32), bias)
    tape.attends(FORWARD_PASS, query, key, heads, kv_heads)
    tape.dispatches(views=4 + apart)  # tokens and heads change places, and heads become one row

    def back(gradient: Tensor) -> list[Any]:
        rows, item = gradient.rows, gradient.item
        gradients = [tape.make(rows, one.width, item) for one in (query, key, value)]
        padded = tape.padded(rows, FLASH_ROWS)
        work = [tape.make(padded, heads, FP32)]
        work.append(tape.make(padded, heads * (-(-size // FLASH_HEAD) * FLASH_HEAD), FP32))
        if kv_heads != heads:
            work += [tape.make(rows, heads * size, item) for _ in range(2)]
        tape.attends(BACKWARD_PASS, query, key, heads, kv_heads)
        tape.dispatches(views=4 + apart)
        tape.hold(*work)
        return gradients

    return tape.node(made, (query, key, value), saved, back)  # type: ignore[no-any-return]


def layer_norm(tape: Tape, tensor: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    """`native_layer_norm`: saves its input and an fp32 mean and deviation of every row."""
    made = tape.like(tensor)
    rows = [tape.make(tensor.rows, 1, FP32) for _ in range(2)]
    tape.hold(*rows)
    saved = tape.keep(tensor, *rows)
    tape.moves(NORM, tensor, scale, offset, made, *rows)

    def back(gradient: Tensor) -> list[Any]:
        first = tape.make(gradient.rows, tensor.width, tensor.item) if tensor.edge else None
        others = [gradient_of(tape, one) if one.edge else None for one in (scale, offset)]
        tape.moves(NORM, gradient, tensor, *rows, scale, offset, first, *others)
        return [first, *others]

    return tape.node(made, (tensor, scale, offset), saved, back)  # type: ignore[no-any-return]


def cross_entropy(tape: Tape, logits: Tensor) -> Tensor:
    """`cross_entropy` of logits: log_softmax, whose result is saved, and the negative log-likelihood."""
    scores = tape.like(logits)
    saved = tape.keep(scores)
    tape.moves(SOFTMAX, logits, scores)
    middle = Tensor(logits.rows, logits.width, logits.item, None)

    def back(gradient: Tensor) -> list[Any]:
        result = tape.like(gradient)
        tape.moves(SOFTMAX, gradient, scores, result)
        return [result]

    def spread(_: Tensor) -> list[Any]:  # zeros, but for the tokens' own
        result = tape.like(logits)
        tape.moves(COPY, Tensor((1, 0), 1, FP32, None))  # the gradient of the loss itself
        tape.moves(COPY, result)
        tape.dispatches(views=1)
        return [result]

    tape.node(middle, (logits,), saved, back)
    made = tape.make((1, 0), 1, logits.item)
    labels = Tensor(logits.rows, 1, INDEX, None)
    tape.moves(COPY, labels, labels)  # shifted by one: padded, cut and copied
    tape.moves(COPY, labels, labels)
    tape.dispatches(views=4)
    tape.moves(NORM, Tensor(logits.rows, 1, logits.item, None))
    tape.hold(logits, scores)
    return tape.node(made, (middle,), None, spread)  # type: ignore[no-any-return]


def without_last(tape: Tape, logits: Tensor, single: bool) -> Tensor:
    """`logits[..., :-1, :].contiguous()`: a copy, but of a `single` sequence, which is in one piece without."""
    rows, width, item = (logits.rows[0], logits.rows[1] - 1), logits.width, logits.item
    copy = Tensor(rows, width, item, logits.storage) if single else tape.make(rows, width, item)
    if not single:
        tape.moves(COPY, copy, copy)

    def uncut(gradient: Tensor) -> list[Any]:
        result = tape.like(logits)
        tape.moves(COPY, result)
        tape.moves(COPY, gradient, gradient, operators=0)
        return [result]

    return tape.node(copy, (logits,), None, uncut)  # type: ignore[no-any-return]


def pieces(tape: Tape, tensor: Tensor, tokens: int, kept: list[Storage]) -> list[Tensor]:
    """`split(tokens, dim=1)`: views of so many tokens of every sequence; backward joins the gradients.

    `kept` are storages that live until then, which may come later.
    """
    whole = tensor.rows[1]
    rows = [(0, min(tokens, whole - begin)) for begin in range(0, whole, tokens)]
    made = [Tensor(one, tensor.width, tensor.item, tensor.storage) for one in rows]
    tape.dispatches(views=len(made))

    def back(*_: Tensor) -> list[Any]:
        joined = tape.like(tensor)
        tape.moves(COPY, joined, joined)
        return [joined]

    return tape.node(made, (tensor,), kept, back)  # type: ignore[no-any-return]


def sharded_cross_entropy(tape: Tape, logits: Tensor, single: bool = False) -> Tensor:
    """VocabParallelCausalLMLoss: the labels are shifted, so the logits are copied without the last token's.

    Those of a `single` sequence are in one piece without a copy.

    Source: deepspeed/sequence/cross_entropy.py, _VocabParallelCrossEntropy of 0.19.8.
    """
    copy = without_last(tape, logits, single)
    rows, width, item = copy.rows, copy.width, copy.item
    wide = copy if item == FP32 else tape.make(rows, width, FP32)
    if item != FP32:
        tape.moves(STREAM, copy, wide)
    lower = tape.make(rows, width, FP32)
    powers = tape.make(rows, width, FP32)
    tape.moves(NORM, wide)  # the largest of every row
    tape.moves(STREAM, wide, lower)
    tape.moves(STREAM, lower, powers)
    tape.moves(NORM, powers)
    tape.moves(STREAM, powers, powers)  # divided in place
    tape.hold(wide, lower)
    saved = tape.keep(powers)

    def back(_: Tensor) -> list[Any]:
        shares = tape.make(rows, width, FP32)
        tape.moves(COPY, shares, shares)
        tape.moves(STREAM, shares, shares)  # times the gradient, in place
        if item == FP32:
            return [shares]
        tensor = tape.make(rows, width, item)
        tape.moves(STREAM, shares, tensor)
        tape.hold(shares)
        return [tensor]

    made = tape.make((1, 0), 1, FP32)
    tape.hold(logits, powers)
    return tape.node(made, (copy,), saved, back)  # type: ignore[no-any-return]
