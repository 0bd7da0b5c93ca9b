"""torch's allocator of page-locked host memory: blocks of powers of two, which it keeps when they are freed.

Source: ATen/core/CachingHostAllocator.h of PyTorch 2.13 (allocate, free, get_free_block): a request is rounded up
(PowerOf2Ceil) and takes a free block of just that size, or a new one; nothing gives one back while a run goes on.
Above pinned_max_cached_size_mb, which has no bound by default, a block is as large as its tensor, and goes with it.
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

    def __init__(self, cached_bytes: int | None = None) -> None:
        """`cached_bytes` is the most that a block has which is rounded up and kept; None for no bound."""
        self.reserved_bytes = 0
        self._cached_bytes = cached_bytes
        self._free: Counter[int] = Counter()  # bytes of a block -> blocks

    def allocate(self, size: int, count: int = 1) -> None:
        """Take a block for each of `count` tensors of `size` bytes."""
        block = self._block(size)
        reused = min(self._free[block], count)
        if reused:
            self._free[block] -= reused
        self.reserved_bytes += (count - reused) * block

    def free(self, size: int, count: int = 1) -> None:
        """Keep the blocks of `count` tensors of `size` bytes for others, or give them back where they are too large."""
        if self._cached(size):
            self._free[block_bytes(size)] += count
        else:
            self.reserved_bytes -= count * size

    def _block(self, size: int) -> int:
        return block_bytes(size) if self._cached(size) else size

    def _cached(self, size: int) -> bool:
        return self._cached_bytes is None or size <= self._cached_bytes
