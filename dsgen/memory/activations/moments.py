"""A moment of a run: what is alive then; and which moments can be the highest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Moment", "Size", "front"]

Size = tuple[int, int]  # (bytes, bytes per sequence of the micro-batch)

_STAYING = (0, 1, 2)  # bytes that stay for a byte of weight gradient handed over
_MICRO_BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 128, 256, 1024)  # sequences for which it is exact


class Moment(NamedTuple):
    """What is alive at one moment on one GPU, beside weights, states and buffers.

    Attributes:
        activations: What forward made: kept for backward, still in use, or made again under checkpointing.
        logits: What has the width of the vocabulary: logits, their copies, the loss's work, and their gradients.
        temporaries: Gradients of activations, and what backward's operators make on their way.
        gradients: Bytes of weight gradients handed over to DeepSpeed by now in this backward pass, in the type of the
            weights. Whether they are still there depends on the ZeRO stage.
        fresh: Bytes of weight gradients that autograd still holds itself: there at every stage.
        where: What runs: "embedding", "block" or "loss".
        blocks: Blocks that this pass has finished before.
    """

    activations: Size
    logits: Size
    temporaries: Size
    gradients: int
    fresh: int
    where: str = ""
    blocks: int = 0

    def total(self, micro_batch: int) -> int:
        """Bytes of activations, logits, temporaries and fresh gradients."""
        fixed = self.activations[0] + self.logits[0] + self.temporaries[0] + self.fresh
        return fixed + micro_batch * (self.activations[1] + self.logits[1] + self.temporaries[1])


def front(moments: Sequence[Moment]) -> tuple[Moment, ...]:
    """The moments that can be the highest of their stretch and block, with logits or gradients and without.

    They are the highest for some micro-batch, and where weight gradients stay, grow to fp32, or go.
    """
    groups: dict[tuple[str, int, bool, bool], list[Moment]] = {}
    for moment in moments:
        key = (moment.where, moment.blocks, moment.gradients > 0, moment.logits > (0, 0))
        groups.setdefault(key, []).append(moment)
    return tuple(moment for group in groups.values() for moment in _highest(group))


def _highest(moments: list[Moment]) -> list[Moment]:
    lines: dict[tuple[int, int, int], Moment] = {}
    for moment in moments:
        fixed = moment.activations[0] + moment.logits[0] + moment.temporaries[0] + moment.fresh
        each = moment.activations[1] + moment.logits[1] + moment.temporaries[1]
        lines.setdefault((fixed, each, moment.gradients), moment)
    found = set()
    for staying in _STAYING:
        flat = [(each, fixed + staying * gradients, -number) for number, (fixed, each, gradients) in enumerate(lines)]
        best: list[tuple[int, int, int]] = []  # those with more bytes than all that grow faster
        for line in sorted(flat, reverse=True):
            if not best or line[1] > best[-1][1]:
                best.append(line)
        for batch in _MICRO_BATCHES:
            found.add(-max((fixed + batch * each, number) for each, fixed, number in best)[1])
    return [moment for number, moment in enumerate(lines.values()) if number in found]
