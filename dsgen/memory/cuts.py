"""How stages 1 and 2 cut the flat weights of each group of an optimizer among the ranks.

Followed from the code of 0.19.8: runtime/zero/stage_1_and_2.py (__init__, get_partition_info).
"""

import functools
from typing import NamedTuple

from dsgen.memory.trained import Trained

__all__ = ["Cut", "cut", "reaches", "widest_of"]

ALIGNED = 2  # elements a rank: stages 1 and 2 pad flat weights to a multiple (nccl_start_alignment_factor)


class Cut(NamedTuple):
    """One group of an optimizer, flattened and cut into equal shares, as stages 1 and 2 do; of rank 0.

    Attributes:
        first: Its first tensor.
        begin: Elements of the groups before it.
        share: Elements of one rank's share.
        tensors: Tensors that reach into this rank's.
        kept: Elements of those.
    """

    first: int
    begin: int
    share: int
    tensors: int
    kept: int


@functools.lru_cache(maxsize=4096)
def cut(trained: Trained, ranks: int) -> tuple[Cut, ...]:
    """How the groups are cut: one, or Muon's two.

    Args:
        trained: The trained tensors.
        ranks: Ranks that each group is cut among.
    """
    starts = trained.groups
    ends = (*(begin for _, begin in starts[1:]), trained.elements)
    made = []
    for (first, begin), end in zip(starts, ends, strict=True):
        share = -(-(end - begin) // (ALIGNED * ranks)) * ALIGNED
        reached = trained.prefix(min(begin + share, end)) if end > begin else first
        made.append(Cut(first, begin, share, reached - first, trained.ends[reached - 1] - begin if end > begin else 0))
    return tuple(made)


def reaches(trained: Trained, ranks: int, index: int) -> bool:
    """Whether a tensor reaches into rank 0's share of its group."""
    return any(one.first <= index < one.first + one.tensors for one in cut(trained, ranks))


@functools.lru_cache(maxsize=4096)
def widest_of(trained: Trained, ranks: int) -> int:
    """Elements of the largest tensor, or piece of one, in this rank's shares."""
    widest = 0
    for one in cut(trained, ranks):
        for index in range(one.first, one.first + one.tensors):
            end = trained.ends[index] - one.begin
            widest = max(widest, min(end, one.share) - end + trained.numels[index])
    return widest
