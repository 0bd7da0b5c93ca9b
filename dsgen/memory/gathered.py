"""How many parameters stage 3 has gathered at once: what it needs, what it keeps for reuse, and what it fetches ahead.

Followed from runtime/zero/partitioned_param_coordinator.py of DeepSpeed 0.19.8: every module that starts fetches ahead
up to `stage3_prefetch_bucket_size` elements while fewer than `stage3_max_live_parameters` are there, so that a model
with more elements soon has that many; a parameter is kept where it is used again within `stage3_max_reuse_distance`.
"""

from __future__ import annotations

from dsgen.buffers import Buffers
from dsgen.memory.numbers import Numbers

__all__ = ["gathered"]


def gathered(numbers: Numbers, buffers: Buffers, head: int, layers: int, checkpointing: bool) -> int:
    """Elements gathered at the turn from forward to backward, the highest moment.

    Args:
        numbers: Element counts of the model.
        buffers: Sizes that the config sets, in elements.
        head: Elements of the output head, used last in forward and first in backward.
        layers: Transformer blocks.
        checkpointing: Each block's forward runs again before its backward, which doubles the distance.
    """
    passes = 2 if checkpointing else 1
    reused, distance = 0, 2 * head
    while reused < layers and distance < buffers.max_reuse:
        reused += 1
        distance += passes * numbers.block
    needed = head + max(reused, 1 if checkpointing else 0) * numbers.block if buffers.max_reuse else numbers.largest
    ahead = 0
    if buffers.prefetch and needed < buffers.max_live:
        # The last tensor fetched ahead may cross the limit by any part of itself.
        ahead = min(buffers.max_live + numbers.block_largest // 2 - needed, numbers.total)
    return min(numbers.total, max(needed + ahead, numbers.largest))
