"""A moment of a run: what is alive then; and which moments can be the highest."""

from collections.abc import Sequence
from typing import NamedTuple

__all__ = [
    "AGAIN",
    "APART",
    "AT",
    "BACKWARD",
    "BEGUN",
    "FETCHED",
    "FORWARD",
    "START",
    "Activity",
    "Position",
    "Size",
    "front",
]

Size = tuple[int, int]  # (bytes, bytes per sequence of the micro-batch)

FORWARD, AGAIN, BACKWARD = range(3)  # ways through a block: forward, forward again for a checkpoint, backward
# Beside a matrix: at none, when it has been fetched and is not used yet, at it; and where a norm begins.
APART, FETCHED, AT, BEGUN = range(4)


class Position(NamedTuple):
    """Where in a block: how many matrices lie before, in the order of forward, and whether at the next one.

    A module with two products counts as two; of a layer with an adapter a further one stands for its end.
    """

    matrices: int
    stage: int = APART


START = Position(0)
# Bytes that stay for a byte of weight gradient handed over by now, and for one of the last of them.
_STAYING = ((0, 0), (1, 0), (2, 0), (0, 1))
_SHRINKING = (*_STAYING, (-1, 0))  # and where the sum of two passes goes as the second hands over its gradients


class Activity(NamedTuple):
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
        last: Bytes of the weight gradient handed over last, or of those of one module.
        way: FORWARD, AGAIN or BACKWARD, where modules are told apart.
        position: Where in the block.
        copies: Bytes of weights that hpZ has copied in this pass, as told of what is gathered: they are among that.
    """

    activations: Size
    logits: Size
    temporaries: Size
    gradients: int
    fresh: int
    where: str = ""
    blocks: int = 0
    last: int = 0
    way: int = FORWARD
    position: Position = START
    copies: int = 0

    def total(self, micro_batch: int) -> int:
        """Bytes of activations, logits, temporaries and fresh gradients."""
        fixed = self.activations[0] + self.logits[0] + self.temporaries[0] + self.fresh
        return fixed + micro_batch * (self.activations[1] + self.logits[1] + self.temporaries[1])

    def without(self, blocks: int, kept: Size, gradients: int = 0) -> "Activity":
        """The same moment where fewer blocks keep activations, and each of them has handed over its gradients."""
        (fixed, each), handed = self.activations, self.gradients + blocks * gradients
        return self._replace(activations=(fixed - blocks * kept[0], each - blocks * kept[1]), gradients=handed)


def front(moments: Sequence[Activity], shrinks: bool = False) -> tuple[Activity, ...]:
    """The moments that can be the highest of their stretch and block, with logits or gradients and without.

    They are the highest for some micro-batch, and where weight gradients stay, grow to fp32, or go; where a later block
    can be the highest, also where they shrink.
    """
    groups: dict[tuple[str, int, bool, bool, int, Position], list[Activity]] = {}
    for moment in moments:
        there = moment.gradients > 0, moment.logits > (0, 0)
        key = (moment.where, moment.blocks, *there, moment.way, moment.position)
        groups.setdefault(key, []).append(moment)
    return tuple(moment for group in groups.values() for moment in _highest(group, shrinks))


def _highest(moments: list[Activity], shrinks: bool) -> list[Activity]:
    lines: dict[tuple[int, int, int, int], Activity] = {}
    for moment in moments:
        fixed = moment.activations[0] + moment.logits[0] + moment.temporaries[0] + moment.fresh
        each = moment.activations[1] + moment.logits[1] + moment.temporaries[1]
        lines.setdefault((fixed, each, moment.gradients, moment.last), moment)
    if len(lines) == 1:
        return list(lines.values())
    chosen: set[int] = set()
    for staying, waiting in _SHRINKING if shrinks else _STAYING:
        flat = sorted(
            (each, fixed + staying * gradients + waiting * last, -number)
            for number, (fixed, each, gradients, last) in enumerate(lines)
        )
        chosen.update(-number for _, _, number in _envelope(flat))
    return [moment for number, moment in enumerate(lines.values()) if number in chosen]


def _envelope(lines: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Of lines (bytes a sequence, bytes, name) in rising order, those that are the highest for some micro-batch."""
    kept: list[tuple[int, int, int]] = []
    for line in lines:
        while kept and line[0] + line[1] >= kept[-1][0] + kept[-1][1]:
            kept.pop()  # as high at one sequence, and it grows faster
        while len(kept) > 1 and _meet(kept[-2], line) <= _meet(kept[-2], kept[-1]):
            kept.pop()
        kept.append(line)
    return kept


def _meet(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """The micro-batch from which the second line is the higher one; it grows faster."""
    return (one[1] - other[1]) / (other[0] - one[0])
