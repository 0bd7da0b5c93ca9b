"""torch's allocator of page-locked memory as arithmetic: powers of two, kept when freed, and taken by the same size."""

from __future__ import annotations

import pytest

from dsgen.allocators.pinned import PinnedMemory, block_bytes


@pytest.mark.parametrize(("size", "block"), [(0, 0), (1, 1), (3, 4), (4096, 4096), (4097, 8192), (2**30 + 1, 2**31)])
def test_a_block_is_the_next_power_of_two(size: int, block: int) -> None:
    assert block_bytes(size) == block


def test_a_freed_block_serves_the_same_power_of_two_and_no_other() -> None:
    memory = PinnedMemory()
    memory.allocate(700)
    memory.free(700)
    memory.allocate(1000)
    reused = memory.reserved_bytes
    memory.free(1000)
    memory.allocate(500)
    smaller = memory.reserved_bytes
    memory.allocate(1025)

    assert (reused, smaller, memory.reserved_bytes) == (1024, 1024 + 512, 1024 + 512 + 2048)


def test_above_a_bound_a_block_is_as_large_as_its_tensor_and_goes_with_it() -> None:
    memory = PinnedMemory(cached_bytes=1024)
    for size in (1025, 1024, 700):
        memory.allocate(size)
    before = memory.reserved_bytes
    for size in (1025, 1024, 700):
        memory.free(size)
    memory.allocate(900)

    assert (before, memory.reserved_bytes) == (1025 + 2 * 1024, 2 * 1024)


def test_several_at_once_are_those_one_by_one() -> None:
    memory, single = PinnedMemory(), PinnedMemory()
    memory.allocate(700, 5)
    memory.free(700, 3)
    memory.allocate(900, 4)
    for _ in range(5):
        single.allocate(700)
    for _ in range(3):
        single.free(700)
    for _ in range(4):
        single.allocate(900)

    assert memory.reserved_bytes == single.reserved_bytes == 6 * 1024


def test_two_at_once_take_a_block_each() -> None:
    memory = PinnedMemory()
    for size in (600, 600):
        memory.allocate(size)

    assert memory.reserved_bytes == 2 * 1024
