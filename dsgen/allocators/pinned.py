"""torch's allocator of page-locked host memory: blocks of powers of two, which it keeps when they are freed.

Source: ATen/core/CachingHostAllocator.h of PyTorch 2.13 (allocate, free, get_free_block): a request is rounded up
(PowerOf2Ceil) and takes a free block of just that size, or a new one; nothing gives one back while a run goes on.
"""

from __future__ import annotations

from collections import Counter

__all__ = ["PinnedMemory", "block_bytes"]


def block_bytes(size: int) -> int:
    """Bytes of the block that a page-locked tensor of `size` bytes gets."""
    return 1 << (size - 1).bit_length() if size else 0


class PinnedMemory:
    """What the allocator of one process has taken.

    Attributes:
        reserved_bytes: Bytes of all its blocks, in use or not.
    """

    def __init__(self) -> None:
        self.reserved_bytes = 0
        self._free: Counter[int] = Counter()  # bytes of a block -> blocks

    def allocate(self, size: int) -> None:
        """Take a block for a tensor of `size` bytes."""
        block = block_bytes(size)
        if self._free[block]:
            self._free[block] -= 1
        else:
            self.reserved_bytes += block

    def free(self, size: int) -> None:
        """Keep the block of a tensor of `size` bytes for another."""
        self._free[block_bytes(size)] += 1
