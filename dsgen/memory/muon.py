"""What DeepSpeed's Muon holds: one momentum for the matrices of blocks, Adam's states for the rest, and its updates.

Followed from the code of DeepSpeed 0.19.8: deepspeed/__init__.py (set_optimizer_flags), runtime/zero/stage_1_and_2.py
(_muon_momentum_buffer, _muon_staging_momentum) and runtime/zero/muon/original_muon.py (muon_update).
"""

from __future__ import annotations

import math

from dsgen.memory.shares import FP32
from dsgen.parameters import Parameter, parameters
from dsgen.profiles import Model

__all__ = ["moments", "updates"]

_ADAM = 2 * FP32  # bytes of Adam's states, an element
_SINGLE_COPIES = 3  # of one matrix in fp32, without ZeRO
_COPIES = 2  # of one matrix in 16 bits while it is made orthogonal (zeropower_via_gram_newtonschulz)
_GRAMS = 4  # products of it with itself, which are squares of its shorter side


def moments(model: Model, full: bool, own: int, whole: int, elements: int, each: int) -> int:
    """Bytes of the states of a share.

    Args:
        model: The architecture.
        full: Every weight is trained; else adapters, which are matrices.
        own: Elements of the share.
        whole: Elements of the tensors that reach into it: Muon steps whole matrices.
        elements: Elements that are trained.
        each: Bytes of an element of those that Muon steps: without ZeRO an fp32 momentum, else one in the type of the
            gradients, and a second buffer for an update that may be skipped.
    """
    return _ADAM * _apart(model, full, own, elements) + each * (whole - _apart(model, full, whole, elements))


def updates(model: Model, full: bool, whole: int, elements: int, size: int, stage: int) -> int:
    """Bytes that the updates of a share take at most: those made by then, and the work on the largest matrix.

    Args:
        model: The architecture.
        full: Every weight is trained.
        whole: Elements of the tensors that reach into the share.
        elements: Elements that are trained.
        size: Bytes of a gradient.
        stage: The ZeRO stage; without ZeRO each update is used at once.
    """
    if not full:
        return 0
    shapes = [item.shape for item in parameters(model) if _stepped(item)]
    largest = max(shapes, key=math.prod, default=(0, 0))
    if not stage:
        return _SINGLE_COPIES * FP32 * math.prod(largest)
    gram = math.prod(largest[:-2]) * min(largest[-2:]) ** 2
    made = max(0, whole - _apart(model, full, whole, elements) - math.prod(largest))
    return size * (made + _COPIES * math.prod(largest) + _GRAMS * gram)


def _apart(model: Model, full: bool, own: int, elements: int) -> int:
    """Elements of a share that Adam steps, if both kinds are spread evenly."""
    named = [item for item in parameters(model) if not _stepped(item)] if full else []
    return own * min(sum(item.numel * item.repeats for item in named), elements) // max(1, elements)


def _stepped(item: Parameter) -> bool:
    return len(item.shape) > 1 and not any(word in item.name for word in ("embed", "lm_head"))
