"""Matrix products, attention and the loss on a tape.

Source: derivatives.yaml of PyTorch 2.13 (of `mm`: mat2 before self; of `addmm`: mat1, mat2, self), and for attention
flash_attn_interface.py and flash_api.cpp of FlashAttention 2.
"""

from __future__ import annotations

from typing import Any

from dsgen.memory.activations.moments import Size
from dsgen.memory.activations.operators import FP32, like
from dsgen.memory.activations.tape import GRADIENTS, LOGITS, TEMPORARIES, Fitted, Leaf, Tape, Tensor

__all__ = [
    "bmm",
    "chunked_loss",
    "cross_entropy",
    "dequantized_linear",
    "flash",
    "grouped",
    "layer_norm",
    "linear",
    "sharded_cross_entropy",
]

QUANTIZED_BLOCK = 64  # elements of a 4-bit weight that share a scale (bitsandbytes, blocksize)
FLASH_ROWS = 128  # rows to which FlashAttention 2 rounds its backward's work space (csrc/flash_attn/flash_api.cpp)
FLASH_HEAD = 32  # elements to which it rounds a head there


def _gradient(tape: Tape, edge: Any, size: tuple[int, int]) -> Tensor | None:
    """The gradient of a weight, or of a copy of one in another type; `size` is its elements and their bytes."""
    return tape.born((1, 0), *size, GRADIENTS if isinstance(edge, Leaf) else None) if edge else None


def linear(
    tape: Tape, tensor: Tensor, kernel: Tensor, out: int, bias: Tensor | None = None, zero3: bool = False
) -> Tensor:
    """`mm`, or `addmm` where there is a bias.

    The input is saved for the weight's gradient only, but by the linear layer of zero.Init always
    (deepspeed/runtime/zero/linear.py, LinearFunctionForZeroStage3).
    """
    made = tape.born(tensor.rows, out, tensor.item) if tape.told else None  # zero.Init's saves when it is done
    saved = tape.keep(tensor if kernel.edge or (zero3 and tensor.edge) else None, kernel if tensor.edge else None)
    made = made or tape.born(tensor.rows, out, tensor.item)
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

    def run_of_zero3(_: Any, gradient: Tensor) -> list[Any]:
        third, first, second = run_with_bias(_, gradient)
        return [first, second, third]

    if tape.told:  # zero.Init's linear layer: its arguments are the input, the weight and the bias
        return tape.node(made, (into, leaf, offset), saved, run_of_zero3)  # type: ignore[no-any-return]
    return tape.node(made, (offset, into, leaf), saved, run_with_bias)  # type: ignore[no-any-return]


def dequantized_linear(tape: Tape, tensor: Tensor, out: int) -> Tensor:
    """bitsandbytes' MatMul4Bit: forward and backward each make the 16-bit weight anew; the input is not kept.

    Its scales, an fp32 number for 64 elements, live until it is made (bitsandbytes, functional.dequantize_4bit).
    """
    rows, width, item, into = tensor.rows, tensor.width, tensor.item, tensor.edge
    whole = _dequantized(tape, width * out, item)
    made = tape.born(rows, out, item)
    del whole

    def run(*_: Any) -> list[Any]:
        again = _dequantized(tape, width * out, item)
        found = [tape.born(rows, width, item)]
        del again
        return found

    return tape.node(made, (into,), None, run)  # type: ignore[no-any-return]


def _dequantized(tape: Tape, elements: int, item: int) -> Tensor:
    scales = tape.born((1, 0), -(-elements // QUANTIZED_BLOCK), FP32, TEMPORARIES)
    made = tape.born((1, 0), elements, item, TEMPORARIES)
    del scales
    return made


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
    """`cross_entropy` of logits: log_softmax, whose result is saved, and the negative log-likelihood."""
    rows, width, item = logits.rows, logits.width, logits.item
    scores = like(tape, logits)
    saved = tape.keep(scores)
    del scores
    middle = Tensor(rows, width, item, None)
    tape.node(middle, (logits.edge,), saved, lambda _, gradient: [like(tape, gradient)])
    made = tape.born((1, 0), 1, item)
    return tape.node(made, (middle.edge,), None, lambda *_: [tape.born(rows, width, item)])  # type: ignore[no-any-return]


def sharded_cross_entropy(tape: Tape, logits: Tensor, single: bool = False) -> Tensor:
    """VocabParallelCausalLMLoss: the labels are shifted, so the logits are copied without the last token's.

    Those of a `single` sequence are in one piece without a copy.

    Source: deepspeed/sequence/cross_entropy.py, _VocabParallelCrossEntropy of 0.19.8.
    """
    whole, width, item = logits.rows, logits.width, logits.item
    rows = whole[0], whole[1] - 1
    copy = Tensor(rows, width, item, logits.storage) if single else tape.born(rows, width, item)
    tape.node(copy, (logits.edge,), None, lambda *_: [tape.born(whole, width, item)])
    wide = copy if item == FP32 else tape.born(rows, width, FP32)
    lower = tape.born(rows, width, FP32)
    powers = tape.born(rows, width, FP32)
    del lower
    saved = tape.keep(powers)
    del wide, powers

    def run(*_: Any) -> list[Any]:
        shares = tape.born(rows, width, FP32)
        return [shares if item == FP32 else tape.born(rows, width, item)]

    made = tape.born((1, 0), 1, FP32)
    return tape.node(made, (copy.edge,), saved, run)  # type: ignore[no-any-return]


def chunked_loss(tape: Tape, hidden: Tensor, kernel: Tensor, vocabulary: int) -> Tensor:
    """Head and loss in chunks of tokens: Liger's fused linear cross entropy, which makes its gradients in forward.

    A chunk has next_power_of_2(ceil(tokens / ceil(vocabulary / hidden size))) tokens; here of every sequence, which is
    the same where the micro-batch is a power of two (Liger-Kernel 0.8.2, ops/fused_linear_cross_entropy.py).
    """
    leaf = kernel.edge
    tokens = -(-hidden.rows[1] // -(-vocabulary // hidden.width))
    rows = (0, 1 << (tokens - 1).bit_length())
    gradient = tape.born(hidden.rows, hidden.width, hidden.item, LOGITS)
    weight_gradient = _gradient(tape, leaf, (kernel.width, kernel.item))
    losses = tape.born(hidden.rows, 1, FP32, LOGITS)
    logits = None
    for _ in range(2):  # a chunk's logits live until the next chunk's are there
        logits = tape.born(rows, vocabulary, hidden.item, LOGITS)
        part = tape.born(rows, hidden.width, hidden.item, LOGITS)
        del part
        if leaf:
            product = tape.born((1, 0), kernel.width, kernel.item, LOGITS)
            wide = product if kernel.item == FP32 else tape.born((1, 0), kernel.width, FP32, LOGITS)
            del product, wide
    made = tape.born((1, 0), 1, FP32)
    saved = tape.keep(gradient, weight_gradient)
    del logits, losses
    return tape.node(made, (hidden.edge, leaf), saved, lambda kept, _: [kept[0], kept[1] if leaf else None])  # type: ignore[no-any-return]
