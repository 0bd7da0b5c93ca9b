"""How stage 3 cuts tensors and their gradients: each rank's shares, the groups that are flattened, the reduce-scatters.

Followed from the code of 0.19.8: runtime/zero/stage3.py (_create_fp16_sub_groups, __add_grad_to_ipg_bucket,
__avg_scatter_grads) with runtime/comm/coalesced_collectives.py.
"""

from __future__ import annotations

import functools

from dsgen.memory.buckets import Flush, Runs, arrivals, worst
from dsgen.memory.trained import AFTER, BEFORE, Trained

__all__ = ["flattened", "partition_numel", "scattered"]


@functools.lru_cache(maxsize=4096)
def partition_numel(found: Trained, ranks: int) -> int:
    """Elements of one rank's partition at stage 3: every tensor is cut alone, the last shares padded."""
    return sum(-(-numel // ranks) for numel in found.numels)


@functools.lru_cache(maxsize=4096)
def flattened(found: Trained, ranks: int, sub_group: int) -> tuple[int, int]:
    """Elements of the flat gradients of stage 3's largest sub-group, and of the largest that has several tensors.

    Whole tensors' shares are put together until they are `sub_group` elements (stage3.py, _create_fp16_sub_groups);
    one alone is flat already.

    Args:
        found: The trained tensors.
        ranks: Ranks that a tensor is cut among.
        sub_group: sub_group_size, in elements.
    """
    most = joined = filled = count = 0
    whole = sub_group >= partition_numel(found, ranks)
    for index, numel in enumerate(found.numels):
        filled += -(-numel // ranks)
        count += 1
        if (filled >= sub_group and not whole) or index == len(found.numels) - 1:
            most, joined = max(most, filled), max(joined, filled if count > 1 else 0)
            filled = count = 0
    return most, joined


@functools.lru_cache(maxsize=1024)
def scattered(found: Trained, bucket: int, ranks: int, runs: Runs) -> tuple[Flush, ...]:
    """The reduce-scatters of stage 3, only those that no earlier one outdoes.

    Args:
        found: The trained tensors.
        bucket: Elements of the bucket.
        ranks: Ranks that a tensor is cut among.
        runs: As for `arrivals`.
    """
    made: list[Flush] = []
    filled = padded = count = widest = 0

    def flush(block: int, place: int, current: int, index: int) -> None:
        nonlocal filled, padded, count, widest
        if filled:
            whole = count == 1 and padded == filled
            larger = filled if filled > bucket else 0
            made.append(Flush(block, place, filled, 0 if whole else padded, current, 0, widest, larger, index))
        filled = padded = count = widest = 0

    for index, place in arrivals(found, runs):
        numel = found.numels[index]
        if filled + numel > bucket:
            flush(found.blocks[index], place, numel, index)
        filled += numel
        padded += -(-numel // ranks) * ranks
        widest = max(widest, -(-numel // ranks))
        count += 1
    flush(BEFORE, -1, 0, -1)
    # Less is gathered beside the last block than beside those before it, which fetch the next ones ahead.
    return tuple(worst(made, max((block for block in found.blocks if block < AFTER), default=AFTER)))
