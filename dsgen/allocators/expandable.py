"""PyTorch's caching allocator with `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.

Source: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.13: Note [Expandable Segments], find_expandable_block, map_block,
try_allocate_expandable_block, unmap_block, should_split.
"""

from __future__ import annotations

import bisect

from dsgen.allocators.caching import (
    MEDIUM_SEGMENT,
    MIN_BLOCK,
    NO_BOUND,
    SMALL_SEGMENT,
    Allocator,
    Block,
    Pool,
    join_free,
)

__all__ = ["Expandable"]

# Bytes of one piece of memory that a segment maps (segment_size in find_expandable_block).
SMALL_PAGE, LARGE_PAGE = SMALL_SEGMENT, MEDIUM_SEGMENT
ADDRESSES = 1 << 62  # bytes from one segment's first address to the next one's
MOST = 9, 8  # a segment has addresses for 9/8 of the GPU's memory (ExpandableSegment)


class Expandable(Allocator):
    """One GPU's allocator with expandable segments.

    One segment for each stream and class of sizes, which gets memory in pages at its end; what is reserved is what is
    mapped. Any rest is split off, as it can always be joined again.
    """

    def empty_cache(self) -> None:
        """Unmap every page that is wholly free."""
        for pool in self._pools.values():
            for block in list(pool.blocks.values()):
                self._unmap(pool, block)

    def _unmap(self, pool: Pool, block: Block) -> None:
        page = SMALL_PAGE if pool.small else LARGE_PAGE
        begin = -(-block.address // page) * page
        size = (block.address + block.size) // page * page - begin
        if size <= 0:
            return
        pool.remove(block)
        if begin > block.address:
            middle = block.cut(begin - block.address)
            pool.put(block)
            block = middle
        if block.size > size:
            pool.put(block.cut(size))
        block.mapped = False
        self.reserved -= size
        self.released += 1
        join_free(block)
        bisect.insort(pool.unmapped, block, key=_address)

    def _open(self, pool: Pool, rounded: int) -> Block:
        block = self._grow(pool, rounded, self.capacity)
        if block is None:
            # A block of this mode is a part of its segment, so no threshold and no size gives one back before.
            self.empty_cache()  # what PyTorch does before it gives up
            block = self._grow(pool, rounded, self.capacity)
        if block is None:
            self.out_of_memory = True
            block = self._grow(pool, rounded, None) or self._room(pool, rounded)  # the first never fails
        pool.remove(block)
        return block

    def _grow(self, pool: Pool, rounded: int, capacity: int | None) -> Block | None:
        """A free block of at least `rounded` bytes, still in its pool, with memory mapped behind or before it."""
        block = self._room(pool, rounded)
        if not block.mapped and not self._map(pool, block, min(block.size, rounded), capacity):
            return None
        while block.size < rounded and (beyond := block.after) is not None:
            if not self._map(pool, beyond, min(rounded - block.size, beyond.size), capacity):
                return None
            block = beyond  # what was free before it is part of it now
        return block

    def _room(self, pool: Pool, rounded: int) -> Block:
        """The lowest free addresses that are enough, with or without memory."""
        for block in pool.unmapped:
            first = block.before if block.before is not None and block.before.free else block
            room = 0
            following: Block | None = first
            while following is not None and following.free and room < rounded:
                room, following = room + following.size, following.after
            if room >= rounded:
                return first
        page = SMALL_PAGE if pool.small else LARGE_PAGE
        most = ADDRESSES if self.capacity is None else max(self.capacity * MOST[0] // MOST[1], rounded)
        self.next_address += ADDRESSES // page * page
        start = -(-self.next_address // page) * page
        block = Block(pool, start, min(-(-most // page) * page, ADDRESSES // page * page), mapped=False)
        bisect.insort(pool.unmapped, block, key=_address)
        return block

    def _map(self, pool: Pool, block: Block, size: int, capacity: int | None) -> bool:
        page = SMALL_PAGE if pool.small else LARGE_PAGE
        size = -(-size // page) * page
        if capacity is not None and self.reserved + size > capacity:
            return False
        pool.unmapped.remove(block)
        if size < block.size:
            bisect.insort(pool.unmapped, block.cut(size), key=_address)
        block.mapped = True
        self.reserved += size
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        join_free(block)
        pool.put(block)
        return True

    def _pool(self, small: bool) -> Pool:
        return Pool(small, self.settings.max_split_bytes, MIN_BLOCK, NO_BOUND)


def _address(block: Block) -> int:
    return block.address
