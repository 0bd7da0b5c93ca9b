"""What DeepSpeed's Muon holds: one momentum for the matrices of blocks, Adam's states for the rest, and its updates.

Followed from the code of DeepSpeed 0.19.8: deepspeed/__init__.py (set_optimizer_flags), runtime/zero/stage_1_and_2.py
(_muon_momentum_buffer, _muon_staging_momentum) and runtime/zero/muon/original_muon.py (muon_update).
"""

from __future__ import annotations

import math

from dsgen.memory.cuts import cut
from dsgen.memory.shares import FP32
from dsgen.memory.trained import Trained

__all__ = ["ADAM", "orthogonal", "single", "states"]

ADAM = 2 * FP32  # bytes of Adam's states, an element
_HALF = 2  # bytes of an element while a matrix becomes orthogonal, in fp16
# torch.isfinite is (x == x) * (abs(x) != inf): three tensors of a byte an element, at once beside the absolute value.
_FLAGS = 3
# Of the largest matrix in fp32, without ZeRO: the update of the matrix before, which `update` of MuonWithAuxAdam.step
# still names (muon_optimizer.py), and of this one what muon_update makes and what torch.where chooses.
_SINGLE_COPIES = 3
# Elements of 16 bits that one matrix becomes orthogonal in, beside it: of its size, and of the size of its product with
# itself (original_muon.py, zeropower_via_gram_newtonschulz): as it starts anew, and in the middle; and if it is square.
_ANEW, _WITHIN, _SQUARE = (2, 4), (1, 7), 6
# Bytes an element while it is divided by its norm (the same function), by type of gradients: the quotient, in that type
# or of fp16 in fp32, which is a copy too, and the quotient in fp16.
_NORMAL = {"bf16": 2 + _HALF, "fp16": 2 * FP32 + _HALF, "fp32": FP32 + _HALF}


def states(tensors: Trained, ranks: int, size: int, precision: str) -> tuple[int, int, int]:
    """Bytes of the states of this rank's shares at stages 1 and 2, of a second momentum, and the most of its updates.

    Muon steps whole matrices: their momentum, and the one that a step which may be skipped writes into, are of the
    type of the gradients.

    Args:
        tensors: The trained tensors, those that Muon steps first.
        ranks: Ranks that each group is cut among.
        size: Bytes of a gradient.
        precision: bf16, fp16 or fp32.
    """
    cuts = cut(tensors, ranks)
    if not tensors.split:
        return ADAM * cuts[0].share, 0, 0
    most = made = 0
    for shape in tensors.shapes[: cuts[0].tensors]:
        most = max(most, made + orthogonal(shape, size, precision))
        made += size * math.prod(shape)
    momentum = size * cuts[0].kept
    return ADAM * sum(one.share for one in cuts[1:]) + momentum, momentum, most


def orthogonal(shape: tuple[int, ...], size: int, precision: str) -> int:
    """Bytes beside the gradient of a matrix, and its momentum, while it becomes an update.

    Args:
        shape: The matrix, or several of them.
        size: Bytes of an element of the gradient.
        precision: bf16, fp16 or fp32.
    """
    numel, gram = math.prod(shape), math.prod(shape[:-2]) * min(shape[-2:]) ** 2  # of its product with itself
    if gram == numel:
        newton = _SQUARE * numel
    else:
        newton = max(_ANEW[0] * numel + _ANEW[1] * gram, _WITHIN[0] * numel + _WITHIN[1] * gram)
    finite, momentum = size + _FLAGS, 2 * size  # so does the update at last: as it was made, and chosen
    return max(finite * numel, momentum * numel, _NORMAL[precision] * numel, _HALF * newton)


def single(tensors: Trained) -> tuple[int, int]:
    """Bytes of the states without ZeRO, with momenta in fp32, and of the work on the largest matrix.

    Args:
        tensors: The trained tensors.
    """
    mine = [numel for numel, shape in zip(tensors.numels, tensors.shapes, strict=True) if shape]
    rest = tensors.elements - sum(mine)
    return ADAM * rest + FP32 * sum(mine), _SINGLE_COPIES * FP32 * max(mine, default=0)
