"""PyTorch's caching allocator as arithmetic: rounding, segments, splitting, merging, and the laws it must keep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgen.allocators.caching import Allocator, replay
from dsgen.allocators.expandable import Expandable

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
    found = replay([(1, request_bytes, 0)], Allocator())

    assert (found.allocated_peak_bytes, found.reserved_peak_bytes) == (allocated, reserved)


def test_an_empty_tensor_takes_nothing():
    found = replay([(1, 0, 0), (-1, 0, 0)], Allocator())

    assert (found.allocated_peak_bytes, found.reserved_peak_bytes) == (0, 0)


def test_small_requests_share_a_segment():
    found = replay([(number, 512 * 1024, 0) for number in range(1, 6)], Allocator())

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

    fits = replay(events, Allocator(100 * MIB))
    bursts = replay([*events, (3, 40 * MIB, 0)], Allocator(100 * MIB))

    assert (fits.out_of_memory, fits.reserved_peak_bytes, fits.released_segments) == (False, 80 * MIB, 1)
    assert bursts.out_of_memory


def test_expandable_segments_map_pages_of_20_mib_at_their_end():
    """Requests of 64 MiB: the default opens segments of 26, 22 and 20 MiB; expandable ones map 4 pages."""
    events = [(1, 25 * MIB, 0), (2, 21 * MIB, 0), (3, 9 * MIB, 0), (4, 9 * MIB, 0)]

    assert replay(events, Allocator()).reserved_peak_bytes == (26 + 22 + 20) * MIB
    assert replay(events, Expandable()).reserved_peak_bytes == 4 * 20 * MIB  # 64 MiB, rounded up to pages
    assert replay(events, Expandable()).allocated_peak_bytes == 64 * MIB


def test_an_expandable_segment_grows_by_what_its_free_end_lacks():
    """60 MiB: 3 pages. 30 MiB are freed at the end; 45 MiB need one page more, where the default opens a segment."""
    events = [(1, 30 * MIB, 0), (2, 30 * MIB, 0), (-2, 0, 0), (3, 45 * MIB, 0)]

    assert replay(events, Expandable()).reserved_peak_bytes == 80 * MIB
    assert replay(events, Allocator()).reserved_peak_bytes == (30 + 30 + 46) * MIB


def test_freed_neighbours_of_different_requests_serve_a_larger_one_in_an_expandable_segment():
    events = [(1, 20 * MIB, 0), (2, 20 * MIB, 0), (-1, 0, 0), (-2, 0, 0), (3, 40 * MIB, 0)]

    assert replay(events, Expandable()).reserved_peak_bytes == 40 * MIB
    assert replay(events, Allocator()).reserved_peak_bytes == 80 * MIB


def test_small_requests_have_an_expandable_segment_of_2_mib_pages():
    events = [(number, 512 * 1024, 0) for number in range(1, 6)]

    assert replay(events, Expandable()).reserved_peak_bytes == 4 * MIB


def test_a_hole_is_used_before_an_expandable_segment_grows():
    """A block that can grow counts with what it can grow to, so the hole is the better fit though the end is smaller.

    Three requests of 20 MiB map 3 pages; the fourth of 10 MiB a page whose rest, 10 MiB, stands at the end. The first
    is freed: a hole of 20 MiB. A request of 9 MiB goes into the hole; then 11 MiB fit the hole's rest, and no page is
    mapped.
    """
    sizes = {1: 20, 2: 20, 3: 20, 4: 10}
    events = [(number, size * MIB, 0) for number, size in sizes.items()]
    events += [(-1, 0, 0), (5, 9 * MIB, 0), (6, 11 * MIB, 0), (7, 10 * MIB, 0)]

    assert replay(events, Expandable()).reserved_peak_bytes == 80 * MIB


def test_expandable_segments_give_back_wholly_free_pages_in_the_middle():
    allocator = Expandable()
    for handle in (1, 2, 3):
        allocator.allocate(handle, 30 * MIB)  # 0-30, 30-60, 60-90: pages of 20 up to 100
    allocator.free(2)
    allocator.empty_cache()

    assert allocator.reserved == 80 * MIB  # the page from 40 to 60 is free, and 90-100 is a part of a page
    allocator.allocate(4, 30 * MIB)
    assert allocator.reserved == 100 * MIB  # mapped again where it was
    assert allocator.reserved_peak == 100 * MIB


def test_a_stream_has_its_own_expandable_segment():
    events = [(1, 16 * MIB, 0), (-1, 0, 0), (2, 16 * MIB, 1)]

    assert replay(events, Expandable()).reserved_peak_bytes == 40 * MIB


def test_before_it_runs_out_an_expandable_allocator_unmaps_what_other_streams_do_not_use():
    events = [(1, 60 * MIB, 0), (-1, 0, 0), (2, 80 * MIB, 1)]

    fits = replay(events, Expandable(100 * MIB))
    bursts = replay([*events, (3, 40 * MIB, 0)], Expandable(100 * MIB))

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
@pytest.mark.parametrize("make", [Allocator, Expandable])
@pytest.mark.parametrize("capacity", [None, 200 * MIB])
def test_laws(make, capacity, steps):
    """What is given out is at least what is asked for, never more than is reserved, and all comes back."""
    allocator = make(capacity)
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


@pytest.mark.parametrize("kind", [Allocator, Expandable])
def test_what_is_set_aside_is_in_no_number_and_needs_no_capacity(kind: type[Allocator]):
    allocator = kind(100 * MIB)
    allocator.set_aside(40 * MIB)
    allocator.allocate(1, 100 * MIB)

    assert (allocator.allocated, allocator.allocated_peak) == (100 * MIB, 100 * MIB)
    assert (allocator.reserved, allocator.reserved_peak) == (100 * MIB, 100 * MIB)
    assert not allocator.out_of_memory
    allocator.empty_cache()
    assert allocator.reserved == 100 * MIB  # it is never given back


def test_what_is_set_aside_keeps_a_free_block_from_a_request_that_it_would_have_served():
    """A segment of 60 MiB lies idle; with 8 MiB of it set aside a request of 55 MiB opens another."""
    idle = [(1, 60 * MIB, 0), (-1, 0, 0)]

    assert replay([*idle, (2, 55 * MIB, 0)], Allocator()).reserved_peak_bytes == 60 * MIB
    split = replay([*idle, (0, 8 * MIB, 0), (2, 55 * MIB, 0)], Allocator())
    assert split.reserved_peak_bytes == (60 - 8 + 56) * MIB
    assert split.allocated_peak_bytes == 60 * MIB


def test_the_cache_is_emptied_by_an_event_without_bytes():
    events = [(1, 60 * MIB, 0), (-1, 0, 0), (0, 0, 0), (2, 20 * MIB, 0)]

    assert replay(events, Allocator()).released_segments == 1
