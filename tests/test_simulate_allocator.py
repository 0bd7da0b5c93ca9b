"""PyTorch's caching allocator as arithmetic: rounding, segments, splitting, merging, and the laws it must keep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgen.engine.simulate_allocator import Allocator, replay

MIB = 2**20


@pytest.mark.parametrize(
    ("request_bytes", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # a rest of 1 MiB or less is not split off, and counts as allocated
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),
        (101 * MIB + 3, 102 * MIB, 102 * MIB),
    ],
)
def test_one_request(request_bytes, allocated, reserved):
    """Sizes as CUDACachingAllocator.cpp gives them out; the same numbers come from torch.cuda on a real GPU."""
    found = replay([(1, request_bytes, 0)])

    assert (found.allocated_peak_bytes, found.reserved_peak_bytes) == (allocated, reserved)


def test_an_empty_tensor_takes_nothing():
    found = replay([(1, 0, 0), (-1, 0, 0)])

    assert (found.allocated_peak_bytes, found.reserved_peak_bytes) == (0, 0)


def test_small_requests_share_a_segment():
    found = replay([(number, 512 * 1024, 0) for number in range(1, 6)])

    assert found.reserved_peak_bytes == 4 * MIB  # four to a segment


def test_freed_memory_is_used_again_and_the_best_fit_is_taken():
    allocator = Allocator()
    allocator.allocate(1, 40 * MIB)
    allocator.allocate(2, 30 * MIB)
    allocator.free(1)
    allocator.free(2)
    allocator.allocate(3, 30 * MIB)  # must not break the larger block
    allocator.allocate(4, 40 * MIB)

    assert allocator.reserved == 70 * MIB


def test_neighbours_merge_within_a_segment_only():
    allocator = Allocator()
    for handle in (1, 2):  # two halves of one 20 MiB segment
        allocator.allocate(handle, 9 * MIB)
    for handle in (1, 2):
        allocator.free(handle)
    allocator.allocate(3, 19 * MIB)

    assert allocator.reserved == 20 * MIB


def test_a_stream_does_not_use_what_another_has_freed():
    allocator = Allocator()
    allocator.allocate(1, 16 * MIB, stream=0)
    allocator.free(1)
    allocator.allocate(2, 16 * MIB, stream=1)

    assert allocator.reserved == 32 * MIB


def test_emptying_the_cache_gives_back_whole_segments_only():
    allocator = Allocator()
    allocator.allocate(1, 16 * MIB)
    allocator.allocate(2, 4 * MIB)
    allocator.allocate(3, 4 * MIB)
    allocator.free(1)
    allocator.free(2)
    allocator.empty_cache()

    assert allocator.reserved == 20 * MIB  # the segment of 2 and 3
    assert allocator.released == 1


def test_before_it_runs_out_the_cache_is_emptied():
    events = [(1, 60 * MIB, 0), (-1, 0, 0), (2, 80 * MIB, 0)]

    fits, bursts = replay(events, 100 * MIB), replay([*events, (3, 40 * MIB, 0)], 100 * MIB)

    assert (fits.out_of_memory, fits.reserved_peak_bytes, fits.released_segments) == (False, 80 * MIB, 1)
    assert bursts.out_of_memory


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("allocate"), st.integers(0, 60 * MIB), st.integers(0, 1)),
            st.tuples(st.just("free"), st.integers(0, 50)),
            st.tuples(st.just("empty")),
        ),
        max_size=80,
    )
)
def test_laws(steps):
    """What is given out is at least what is asked for, never more than is reserved, and all comes back."""
    allocator = Allocator()
    asked: dict[int, int] = {}
    for number, (step, *rest) in enumerate(steps, 1):
        if step == "allocate":
            allocator.allocate(number, *rest)
            asked[number] = rest[0]
        elif step == "free" and asked:
            handle = sorted(asked)[rest[0] % len(asked)]
            allocator.free(handle)
            del asked[handle]
        elif step == "empty":
            allocator.empty_cache()
        assert sum(asked.values()) <= allocator.allocated <= allocator.reserved
        assert allocator.reserved % (2 * MIB) == 0
    for handle in asked:
        allocator.free(handle)
    allocator.empty_cache()

    assert (allocator.allocated, allocator.reserved) == (0, 0)
