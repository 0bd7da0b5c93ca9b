"""PyTorch's caching allocator for CUDA, as arithmetic: what `memory_allocated` and `memory_reserved` would have said.

Source of every rule and constant: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.13 (c10/core/AllocatorConfig.h for
the sizes). `expandable` has the mode with expandable segments.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from dsgen.allocators.allocator_settings import AllocatorSettings

__all__ = ["Allocator", "Block", "Pool", "Reserved", "join_free", "replay"]

MIN_BLOCK = 512  # bytes; every request is rounded up to a multiple of it (kMinBlockSize)
SMALL_REQUEST = 1 << 20  # bytes; up to here a request is served from 2 MiB segments (kSmallSize)
SMALL_SEGMENT = 2 << 20  # bytes (kSmallBuffer)
MEDIUM_REQUEST = 10 << 20  # bytes; below it a request opens a 20 MiB segment (kMinLargeAlloc)
MEDIUM_SEGMENT = 20 << 20  # bytes (large_segment_size, its default)
LARGE_ROUNDING = 2 << 20  # bytes; larger requests get a segment of their own, rounded up to this (kRoundLarge)
OVERSIZE_ROUNDING = 20 << 20  # bytes that an unsplit block may be too large (max_non_split_rounding_size, its default)
_ADDRESS_BITS = 80  # of the number by which free blocks are ordered: its size above them, its address in them
NO_BOUND = 1 << _ADDRESS_BITS  # bytes that no request has


class Reserved:
    """What an allocator held at most: bytes given to tensors, bytes taken from the GPU, and whether it ran out."""

    __slots__ = ("allocated_peak_bytes", "out_of_memory", "released_segments", "reserved_peak_bytes")

    def __init__(self, allocated: int, reserved: int, released: int, out_of_memory: bool) -> None:
        self.allocated_peak_bytes, self.reserved_peak_bytes = allocated, reserved
        self.released_segments, self.out_of_memory = released, out_of_memory


class Block:
    """A piece of a segment; neighbours of one segment are linked."""

    __slots__ = ("address", "after", "before", "free", "mapped", "pool", "since", "size")

    def __init__(
        self,
        pool: Pool,
        address: int,
        size: int,
        mapped: bool = True,
        before: Block | None = None,
        after: Block | None = None,
    ) -> None:
        self.pool, self.address, self.size = pool, address, size
        self.before, self.after = before, after
        self.free = True
        self.mapped = mapped  # False: addresses without memory, the rest of an expandable segment
        self.since = 0  # requests that its pool had served when it became free (gc_count_base)

    def cut(self, size: int) -> Block:
        """Keep the first `size` bytes; the rest as a block of its own, in no pool yet."""
        rest = Block(self.pool, self.address + size, self.size - size, self.mapped, self, self.after)
        if self.after is not None:
            self.after.before = rest
        self.after, self.size = rest, size
        return rest

    @property
    def whole(self) -> bool:
        """Whether it is a segment of its own."""
        return self.before is None and self.after is None


class Pool:
    """Free blocks of one stream and one class of sizes, ordered by size and then address.

    The rest of a block is split off from `least_rest` bytes on, for a request of less than `split_below`.
    """

    __slots__ = ("blocks", "least_rest", "max_split", "order", "requests", "small", "split_below", "unmapped")

    def __init__(self, small: bool, max_split: int | None, least_rest: int, split_below: int) -> None:
        self.small, self.max_split = small, max_split
        self.least_rest, self.split_below = least_rest, split_below
        self.requests = 0  # that it was asked (get_free_blocks_call_count)
        self.unmapped: list[Block] = []  # ordered by address
        self.order: list[int] = []  # size and address of each as one number
        self.blocks: dict[int, Block] = {}  # by it

    def put(self, block: Block) -> None:
        """Take a free block in."""
        key = block.size << _ADDRESS_BITS | block.address
        insort(self.order, key)
        self.blocks[key] = block
        block.since = self.requests

    def remove(self, block: Block) -> None:
        """Let a free block go."""
        key = block.size << _ADDRESS_BITS | block.address
        del self.order[bisect_left(self.order, key)]
        del self.blocks[key]

    def best_fit(self, size: int) -> Block | None:
        """The smallest block that is large enough; one that can grow counts with what it can grow to."""
        self.requests += 1
        order = self.order
        place = bisect_left(order, size << _ADDRESS_BITS)
        if place == len(order):
            return None
        if self.unmapped:  # without, no block can grow
            place = self._least_reach(place)
        if self.max_split is not None and self.blocks[order[place]].size >= (
            self.max_split if size < self.max_split else size + OVERSIZE_ROUNDING
        ):
            return None  # a large block is neither split nor given away whole for much less
        return self.blocks.pop(order.pop(place))

    def _least_reach(self, place: int) -> int:
        """The block from a place on before the first that can have as much or more."""
        block = self.blocks[self.order[place]]
        if block.after is None or block.after.mapped:  # the next one is as large at least
            return place
        for other, key in enumerate(itertools.islice(self.order, place + 1, None), place + 1):
            if _reach(self.blocks[key]) >= _reach(block):
                break
            block, place = self.blocks[key], other
        return place

    def wholes(self) -> Iterator[Block]:
        """Free blocks that are segments of their own, the smallest first."""
        return iter([block for key in self.order if (block := self.blocks[key]).whole])


class Allocator:
    """One GPU's allocator.

    Args:
        capacity_bytes: What the GPU can give; None for as much as is asked.
        settings: As the process set them; None for PyTorch's defaults.

    Attributes:
        next_address: Where the next segment will lie, as the driver chooses. Of free blocks of one size the one at the
            lowest address is taken.
    """

    def __init__(self, capacity_bytes: int | None = None, settings: AllocatorSettings | None = None) -> None:
        self.capacity, self.settings = capacity_bytes, settings or AllocatorSettings()
        self.allocated = self.reserved = self.allocated_peak = self.reserved_peak = self.released = 0
        self.out_of_memory = False
        self._divisions = self.settings.divisions
        self._pools: dict[tuple[int, bool], Pool] = {}
        self._used: dict[int, Block] = {}
        self.next_address = 0

    def allocate(self, handle: int, size: int, stream: int = 0) -> None:
        """Serve a request of `size` bytes; nothing is taken for an empty tensor."""
        if size == 0:
            return
        rounded = _rounded(size, self._divisions) if self._divisions else -(-size // MIN_BLOCK) * MIN_BLOCK
        key = stream, rounded <= SMALL_REQUEST
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = self._pool(rounded <= SMALL_REQUEST)
        block = pool.best_fit(rounded) or self._open(pool, rounded)
        # Millions of requests of a replay come here: what `cut` and `put` do is written out.
        rest = block.size - rounded
        if rest >= pool.least_rest and rounded < pool.split_below:
            after = block.after
            block.after = other = Block(pool, block.address + rounded, rest, True, block, after)
            if after is not None:
                after.before = other
            place = rest << _ADDRESS_BITS | other.address
            insort(pool.order, place)
            pool.blocks[place] = other
            other.since = pool.requests
            block.size = rounded
        block.free = False
        self._used[handle] = block
        self.allocated += block.size  # an unsplit rest counts as allocated
        if self.allocated > self.allocated_peak:
            self.allocated_peak = self.allocated

    def _pool(self, small: bool) -> Pool:
        """A pool without blocks."""
        most = self.settings.max_split_bytes
        if small:
            return Pool(small, most, MIN_BLOCK, NO_BOUND)
        return Pool(small, most, SMALL_REQUEST + 1, NO_BOUND if most is None else most)

    def set_aside(self, size: int, stream: int = 0) -> None:
        """Serve a request that is never given back, and whose bytes are in no number that is told.

        What no tensor holds lies among the tensors all the same, and can keep free blocks apart: cuBLAS's workspaces.
        The card's capacity is without it, too.
        """
        self.reserved -= size
        held, most = self.allocated, self.allocated_peak
        self.allocate(-1 - len(self._used), size, stream)
        self.allocated, self.allocated_peak = held, most

    def free(self, handle: int) -> None:
        """Take a request back; free neighbours become one block."""
        block = self._used.pop(handle, None)
        if block is None:
            return
        self.allocated -= block.size
        block.free = True
        # What `join_free` and `put` do is written out, as in `allocate`.
        pool, before, after = block.pool, block.before, block.after
        order, blocks = pool.order, pool.blocks
        if before is not None and before.free and before.mapped:
            place = before.size << _ADDRESS_BITS | before.address
            del order[bisect_left(order, place)], blocks[place]
            block.address = before.address
            block.size += before.size
            block.before = before = before.before
            if before is not None:
                before.after = block
        if after is not None and after.free and after.mapped:
            place = after.size << _ADDRESS_BITS | after.address
            del order[bisect_left(order, place)], blocks[place]
            block.size += after.size
            block.after = after = after.after
            if after is not None:
                after.before = block
        place = block.size << _ADDRESS_BITS | block.address
        insort(order, place)
        blocks[place] = block
        block.since = pool.requests

    def empty_cache(self) -> None:
        """Give every wholly free segment back to the GPU."""
        for pool in self._pools.values():
            for block in pool.wholes():
                self._release(block)

    def address(self, handle: int) -> int | None:
        """Where a request lies; None where it has been given back, or takes nothing."""
        block = self._used.get(handle)
        return None if block is None else block.address

    def state(self) -> object:
        """What decides how the next requests are served, with where those lie that they give back: equal, when it is.

        None where it cannot be told: with a threshold of garbage collection the age of free blocks counts too.
        """
        if self.settings.garbage_threshold:
            return None
        free = {
            key: (list(pool.order), [(block.address, block.size) for block in pool.unmapped])
            for key, pool in self._pools.items()
        }
        return self.reserved, self.reserved_peak, self.released, self.out_of_memory, free

    def _release(self, block: Block) -> None:
        block.pool.remove(block)
        self.reserved -= block.size
        self.released += 1

    def _collect_garbage(self) -> None:
        """Give idle segments back that waited longer than the others, where more than a share of the memory is taken.

        Source: garbage_collect_cached_blocks: rounds over the pool of large blocks, each with the mean age as bound.
        """
        if self.capacity is None or not self.settings.garbage_threshold:
            return
        wanted = self.reserved - int(self.settings.garbage_threshold * self.capacity)
        pools = [pool for pool in self._pools.values() if not pool.small]
        left = [block for pool in pools for block in pool.wholes()]
        ages = sum(block.pool.requests - block.since for block in left)
        while wanted > 0 and left:
            bound = ages / len(left)
            old = [block for block in left if block.pool.requests - block.since >= bound]
            if not old:
                return
            for block in old:
                ages -= block.pool.requests - block.since
                wanted -= block.size
                self._release(block)
            left = [block for block in left if block not in old]

    def _release_oversize(self, pool: Pool, rounded: int) -> None:
        """Give unsplit large blocks of the same stream back, as many as the request needs.

        Source: release_available_cached_blocks; only with max_split_size_mb.
        """
        least = self.settings.max_split_bytes
        if least is None:
            return
        wanted = max(least, rounded)
        blocks = [pool.blocks[key] for key in pool.order]
        fitting = next((block for block in blocks if block.size >= wanted), None)
        if fitting is not None:
            self._release(fitting)
            return
        for block in reversed(blocks):
            if wanted <= 0 or block.size < least:
                return
            wanted -= block.size
            self._release(block)

    def _open(self, pool: Pool, rounded: int) -> Block:
        if pool.small:
            size = SMALL_SEGMENT
        elif rounded < MEDIUM_REQUEST:
            size = MEDIUM_SEGMENT
        else:
            size = -(-rounded // LARGE_ROUNDING) * LARGE_ROUNDING
        self._collect_garbage()
        if self._lacks(size):
            self._release_oversize(pool, rounded)
        if self._lacks(size):
            self.empty_cache()  # what PyTorch does before it gives up
            self.out_of_memory = self.out_of_memory or self._lacks(size)
        self.reserved += size
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        block = Block(pool, self.next_address, size)
        self.next_address += size
        return block

    def _lacks(self, size: int) -> bool:
        return self.capacity is not None and self.reserved + size > self.capacity


def _rounded(size: int, divisions: int) -> int:
    """A request as the allocator takes it: a multiple of MIN_BLOCK, or of a part of the power of two below it.

    Source: round_size and roundup_power2_next_division.
    """
    if divisions > 1 and size > MIN_BLOCK * divisions:
        part = (1 << (size.bit_length() - 1)) // divisions
        return -(-size // part) * part
    return -(-size // MIN_BLOCK) * MIN_BLOCK


def _reach(block: Block) -> int:
    """Bytes that a block has and can grow by."""
    after = block.after
    return block.size + (after.size if after is not None and not after.mapped else 0)


def join_free(block: Block) -> None:
    """Make one block of a free one, which is in no pool, and its free neighbours of the same kind."""
    for other in (block.before, block.after):
        if other is not None and other.free and other.mapped == block.mapped:
            if other.mapped:
                block.pool.remove(other)
            else:
                block.pool.unmapped.remove(other)
            _join(block, other)


def _join(block: Block, other: Block) -> None:
    """Make one block of two neighbours; `block` stays."""
    if other is block.before:
        block.address = other.address
        block.before = other.before
        if other.before is not None:
            other.before.after = block
    else:
        block.after = other.after
        if other.after is not None:
            other.after.before = block
    block.size += other.size


def replay(events: Iterable[tuple[int, int, int]], allocator: Allocator) -> Reserved:
    """Run a whole history through a fresh allocator.

    Args:
        events: (handle, bytes, stream) with a handle above 0 for a request, (-handle, ...) when it is freed,
            (0, 0, 0) when the cache is emptied, (0, bytes, stream) for what is set aside.
        allocator: Of the default mode or of another.
    """
    for handle, size, stream in events:
        if handle > 0:
            allocator.allocate(handle, size, stream)
        elif handle < 0:
            allocator.free(-handle)
        elif size:
            allocator.set_aside(size, stream)
        else:
            allocator.empty_cache()
    return Reserved(allocator.allocated_peak, allocator.reserved_peak, allocator.released, allocator.out_of_memory)
