"""Settings of PyTorch's CUDA allocator: what a value means, and what each does to blocks and segments, by cause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgen.allocators.allocator_settings import parse
from dsgen.allocators.caching import Allocator, replay
from dsgen.allocators.expandable import Expandable

MIB = 2**20


def test_a_value_is_read_as_pytorch_reads_it():
    settings = parse(" max_split_size_mb:128, garbage_collection_threshold:0.8,roundup_power2_divisions:4 ")

    assert (settings.max_split_bytes, settings.garbage_threshold, settings.divisions) == (128 * MIB, 0.8, 4)
    assert not settings.expandable
    assert parse("expandable_segments:True").expandable
    assert not parse("expandable_segments:False").expandable
    assert parse("").max_split_bytes is None
    assert (parse("pinned_max_cached_size_mb:64").pinned_cached_bytes, parse("").pinned_cached_bytes) == (
        64 * MIB,
        None,
    )


@pytest.mark.parametrize(
    "text",
    [
        "max_split_size_mb:19",  # must not lie below a segment of 20 MiB
        "max_split_size_mb:many",
        "garbage_collection_threshold:1",
        "garbage_collection_threshold:most",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:[256:1,512:2]",
        "expandable_segments:true",
        "backend:cudaMallocAsync",
        "expandable_segments",
        "pinned_max_cached_size_mb:-1",
        "pinned_max_round_threshold_mb:64",  # without the other one a block that is too small may be taken
    ],
)
def test_what_pytorch_refuses_or_a_simulation_does_not_follow_is_refused(text):
    with pytest.raises(ValueError, match="is no setting of torch's allocators that a simulation follows"):
        parse(text)


def test_the_least_max_split_size_is_that_of_a_segment():
    """torch 2.13 takes 20, and vLLM sets it while it loads a model."""
    assert parse("max_split_size_mb:20").max_split_bytes == 20 * MIB


def allocator(text: str, capacity: int | None = None) -> Allocator:
    return Allocator(capacity, parse(text))


def test_a_block_of_max_split_size_is_not_split_for_a_small_request():
    """By default 30 MiB are cut off a free block of 200 MiB; with the bound they get a segment of their own."""
    events = [(1, 200 * MIB, 0), (-1, 0, 0), (2, 30 * MIB, 0)]

    assert replay(events, Allocator()).reserved_peak_bytes == 200 * MIB
    assert replay(events, allocator("max_split_size_mb:100")).reserved_peak_bytes == 230 * MIB


@pytest.mark.parametrize(("request_mib", "reserved"), [(181, 200), (180, 380)])
def test_a_block_above_max_split_size_serves_whole_what_is_less_than_20_mib_smaller(request_mib, reserved):
    """`max_non_split_rounding_size`: a block of 20 MiB more than is asked is too large."""
    events = [(1, 200 * MIB, 0), (-1, 0, 0), (2, request_mib * MIB, 0)]

    found = replay(events, allocator("max_split_size_mb:100"))

    assert found.reserved_peak_bytes == reserved * MIB
    assert found.allocated_peak_bytes == 200 * MIB  # the rest of a block that is not split counts as allocated


def test_before_the_whole_cache_only_large_blocks_enough_for_the_request_are_released():
    """Three free segments of 120, 150 and 20 MiB on a card of 300: 140 MiB need the one of 150 alone."""
    events = [(1, 120 * MIB, 0), (2, 150 * MIB, 0), (3, 20 * MIB, 0), (-1, 0, 0), (-2, 0, 0), (-3, 0, 0)]
    events += [(4, 125 * MIB, 1)]  # of another stream: its own free blocks are none, so all is released
    bounded = replay(events, allocator("max_split_size_mb:100", 300 * MIB))
    assert (bounded.released_segments, bounded.out_of_memory) == (3, False)

    same = replay([*events[:-1], (4, 175 * MIB, 0)], allocator("max_split_size_mb:100", 300 * MIB))
    assert (same.released_segments, same.out_of_memory) == (2, False)  # 150 and 120, of 270 MiB, and not that of 20


def test_garbage_is_collected_above_its_threshold_oldest_first():
    """142 MiB are taken of a card of 200 when 50 are asked, 22 above the threshold: the older idle segment covers that.

    The segment of 30 MiB has been idle for three requests, that of 28 for two: the mean, 2.5, lies between them.
    """
    garbage = allocator("garbage_collection_threshold:0.6", 200 * MIB)
    garbage.allocate(1, 30 * MIB)
    garbage.allocate(2, 28 * MIB)
    garbage.free(1)
    garbage.allocate(3, 40 * MIB)
    garbage.free(2)
    garbage.allocate(4, 44 * MIB)
    assert (garbage.reserved, garbage.released) == (142 * MIB, 0)  # 98 were below the threshold
    garbage.allocate(5, 50 * MIB)

    assert garbage.released == 1
    assert garbage.reserved == (28 + 40 + 44 + 50) * MIB
    assert not garbage.out_of_memory


def test_below_its_threshold_no_garbage_is_collected():
    events = [(1, 30 * MIB, 0), (-1, 0, 0), (2, 40 * MIB, 0)]

    assert replay(events, allocator("garbage_collection_threshold:0.5", 100 * MIB)).released_segments == 0


def test_a_block_in_use_and_a_split_one_are_no_garbage():
    garbage = allocator("garbage_collection_threshold:0.1", 200 * MIB)
    garbage.allocate(1, 60 * MIB)
    garbage.free(1)
    garbage.allocate(2, 20 * MIB)  # splits the segment of 60
    garbage.allocate(3, 50 * MIB)
    garbage.allocate(4, 50 * MIB)

    assert garbage.released == 0


@pytest.mark.parametrize(
    ("request_mib", "divisions", "allocated"),
    [(1200, 4, 1280), (1280, 4, 1280), (1025, 4, 1280), (1024, 4, 1024), (1200, 8, 1280), (1100, 8, 1152)],
)
def test_requests_are_rounded_to_a_part_of_a_power_of_two(request_mib, divisions, allocated):
    """1,200 MiB with four divisions are 1,280: the example in PyTorch's notes on CUDA semantics."""
    found = replay([(1, request_mib * MIB, 0)], allocator(f"roundup_power2_divisions:{divisions}"))

    assert found.allocated_peak_bytes == allocated * MIB


def test_a_request_too_small_to_be_divided_is_a_multiple_of_512():
    assert replay([(1, 1300, 0)], allocator("roundup_power2_divisions:4")).allocated_peak_bytes == 1536


@given(
    st.lists(st.one_of(st.integers(1, 90 * MIB), st.integers(-40, -1)), max_size=60),
    st.sampled_from(
        [
            "max_split_size_mb:32",
            "garbage_collection_threshold:0.3",
            "roundup_power2_divisions:8",
            "max_split_size_mb:64",
        ]
    ),
    st.sampled_from([None, 300 * MIB]),
)
def test_laws(steps, text, capacity):
    """Whatever is set: what is given out is at least what is asked and at most what is reserved, and all comes back."""
    for made in (Allocator(capacity, parse(text)), Expandable(capacity, parse(text))):
        asked: dict[int, int] = {}
        for number, step in enumerate(steps, 1):
            if step > 0:
                made.allocate(number, step, number % 2)
                asked[number] = step
            elif asked:
                handle = sorted(asked)[-step % len(asked)]
                made.free(handle)
                del asked[handle]
            assert sum(asked.values()) <= made.allocated <= made.reserved
            assert made.out_of_memory or capacity is None or made.reserved <= capacity
        for handle in asked:
            made.free(handle)
        made.empty_cache()
        assert (made.allocated, made.reserved) == (0, 0)
