"""Head and loss in chunks of tokens on a tape: Liger's fused linear cross entropy, as each of its releases has it.

Source: liger_kernel/ops/fused_linear_cross_entropy.py (fused_linear_cross_entropy_forward) and transformers/model/ of
the wheels of liger-kernel 0.3.0 to 0.8.5.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from dsgen.families.tape.graph import COPY, SOFTMAX, STREAM
from dsgen.families.tape.operators import FP32, gradient_of
from dsgen.families.tape.products import without_last
from dsgen.families.tape.tape import LOGITS, Tape, Tensor

__all__ = ["LIGERS", "Liger", "chunked_loss"]


class Liger(NamedTuple):
    """What a release makes of a chunk.

    Attributes:
        wide: Logits are made fp32 for the kernel, and narrow again.
        scaled: Their gradient is copied, times the chunk's share of the tokens that count.
        product: The head's gradient of a chunk is a product of its own, copied to fp32 and added; else `addmm` adds it
            where it is kept.
        shifted: The model's forward copies the hidden states without the last token's; else labels are shifted.
    """

    wide: bool = False
    scaled: bool = False
    product: bool = False
    shifted: bool = False


# Each release that changed it (Model.liger) -> what it makes.
LIGERS: Mapping[str, Liger] = MappingProxyType(
    {
        "0.3.0": Liger(wide=True, scaled=True, shifted=True),
        "0.5.0": Liger(scaled=True, shifted=True),
        "0.5.3": Liger(shifted=True),
        "0.5.6": Liger(),
        "0.6.2": Liger(product=True),
    }
)


def chunked_loss(tape: Tape, hidden: Tensor, kernel: Tensor, vocabulary: int, liger: Liger, single: bool) -> Tensor:
    """Head and loss in chunks of tokens, whose gradients are made in forward.

    A chunk has next_power_of_2(ceil(tokens / ceil(vocabulary / hidden size))) tokens; here of every sequence, which is
    the same where the micro-batch is a power of two. `single` says that it is one sequence.
    """
    states = without_last(tape, hidden, single) if liger.shifted else hidden
    tokens = -(-states.rows[1] // -(-vocabulary // states.width))
    rows = (0, 1 << (tokens - 1).bit_length())
    gradient = tape.make(states.rows, states.width, states.item, LOGITS)
    weight_gradient = gradient_of(tape, kernel) if kernel.edge else None
    losses = tape.make(states.rows, 1, FP32, LOGITS)
    before: list[Tensor] = []
    for _ in range(2):  # a chunk's logits live until the next chunk's are there
        logits = tape.make(rows, vocabulary, states.item, LOGITS)
        tape.hold(*before[:1])
        made = _gradient(tape, logits, liger)
        tape.hold(*before[1:])
        before = made
        tape.make(rows, states.width, states.item, LOGITS)
        if kernel.edge and liger.product:
            product = tape.make((1, 0), kernel.width, kernel.item, LOGITS)
            if kernel.item != FP32:
                tape.make((1, 0), kernel.width, FP32, LOGITS)
                tape.hold(product)
    if tape.works:
        _work_in_chunks(tape, states, kernel, vocabulary, rows[1], liger)
    loss = tape.make((1, 0), 1, FP32)
    tape.hold(hidden, *before, losses, gradient, weight_gradient)
    saved = tape.keep(gradient, weight_gradient)
    return tape.node(loss, (states, kernel), saved, lambda _: [gradient, weight_gradient])  # type: ignore[no-any-return]


def _gradient(tape: Tape, logits: Tensor, liger: Liger) -> list[Tensor]:
    """The logits as they stay until the next chunk's, and their gradient where it is a copy."""
    if liger.wide and logits.item != FP32:
        wide = tape.make(logits.rows, logits.width, FP32, LOGITS)
        tape.hold(logits)
        logits = tape.make(logits.rows, logits.width, logits.item, LOGITS)
        tape.hold(wide)
    return [logits, tape.make(logits.rows, logits.width, logits.item, LOGITS)] if liger.scaled else [logits]


def _work_in_chunks(tape: Tape, hidden: Tensor, kernel: Tensor, vocabulary: int, chunk: int, liger: Liger) -> None:
    """What a chunked loss does: of each chunk logits, their loss and gradient in one kernel, and what that leads to."""
    width, item, left = hidden.width, hidden.item, hidden.rows[1]
    tape.moves(COPY, hidden)  # zeros
    if kernel.edge:
        tape.moves(COPY, kernel)
    while left:
        rows = 0, min(chunk, left)
        logits, part = Tensor(rows, vocabulary, item, None), Tensor(rows, width, item, None)
        wide = Tensor(rows, vocabulary, FP32, None) if liger.wide and item != FP32 else logits
        tape.multiplies(rows, (vocabulary, 0), (width, 0), item, views=3)
        if wide is not logits:
            tape.moves(STREAM, logits, wide)
        tape.moves(SOFTMAX, wide, wide)
        if wide is not logits:
            tape.moves(STREAM, wide, logits)
        if liger.scaled:
            tape.moves(STREAM, logits, logits)
        tape.multiplies(rows, (width, 0), (vocabulary, 0), item)
        tape.moves(COPY, part, part)
        if kernel.edge:
            tape.multiplies((vocabulary, 0), (width, 0), rows, item, views=1)
        if kernel.edge and liger.product:
            sums = Tensor((1, 0), kernel.width, FP32, None)
            if item != FP32:
                tape.moves(STREAM, kernel, sums)
            tape.moves(STREAM, kernel, sums, kernel)
        left -= rows[1]
