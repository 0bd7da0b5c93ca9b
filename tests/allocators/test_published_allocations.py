"""dsgen's port of torch's allocator beside what the real one did on GPUs, as others published it.

Whole histories of memory snapshots (benchmarks/data/allocations.json), and the numbers that issues, torch's own tests
and posts have of a few requests. Each test names its source.
"""

from __future__ import annotations

import copy
import importlib
import itertools
import pickle
from pathlib import Path
from typing import Any

import pytest
from recorded import allocations

from dsgen.allocators import Allocator, Expandable
from dsgen.allocators.allocator_settings import parse

KIB, MIB, GIB = 2**10, 2**20, 2**30
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
# torch's tests, which its CI runs on GPUs: github.com/pytorch/pytorch, test/test_cuda.py at commit
# 000e43cdff99f30291164c1f2e90133f19fa83fb.
Facts = list[tuple[int, int]]


@pytest.fixture(scope="module")
def played() -> Any:
    """benchmarks/snapshots_played.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module("snapshots_played")


@pytest.fixture(scope="module")
def snapshots() -> Any:
    """benchmarks/snapshots.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module("snapshots")


def made(text: str = "", capacity: int | None = None) -> Allocator:
    """An allocator as PYTORCH_CUDA_ALLOC_CONF sets it."""
    settings = parse(text)
    return (Expandable if settings.expandable else Allocator)(capacity, settings)


HISTORIES = allocations()


@pytest.mark.parametrize("history", HISTORIES, ids=[record["source"].rpartition("/")[2] for record in HISTORIES])
def test_every_request_of_a_history_lies_where_torch_put_it(played: Any, history: dict[str, Any]) -> None:
    """Addresses, bytes reserved after each request, what an emptied cache keeps, and both totals at the end."""
    assert played.differences(history) == []


@pytest.mark.parametrize("history", HISTORIES, ids=[record["source"].rpartition("/")[2] for record in HISTORIES])
def test_a_request_elsewhere_is_noticed(played: Any, history: dict[str, Any]) -> None:
    """The last request is recorded 512 bytes further on."""
    wrong = copy.deepcopy(history)
    events = wrong["events"].split()
    place = max(number for number, event in enumerate(events) if event[0] not in "-+*")
    size, address = wrong["places"].split()[int(events[place], 16)].split("@")
    wrong["places"] += f" {size}@{int(address, 16) + 1:x}"
    known = len(wrong["places"].split()) - 1
    gone = [number for number, event in enumerate(events) if number > place and event == f"-{events[place]}"]
    for number in (place, *gone):
        events[number] = ("-" if number != place else "") + f"{known:x}"
    wrong["events"] = " ".join(events)

    (noticed,) = played.differences(wrong)
    assert f"{int(size, 16)} bytes lie at" in noticed


def test_the_histories_have_what_they_are_kept_for() -> None:
    """Starts of a process and of a step, new segments, an emptied cache, both modes, thousands of requests."""
    kinds = [{event[0] if event[0] in "-+*" else "" for event in record["events"].split()} for record in HISTORIES]

    assert [bool(record["held"]) for record in HISTORIES] == [False, False, True, True]
    assert ["+" in kind for kind in kinds] == [True, True, True, False]
    assert ["*" in kind for kind in kinds] == [False, False, True, False]
    assert [record["settings"] for record in HISTORIES] == ["", "", "", "expandable_segments:True"]
    assert sum(len(record["events"].split()) for record in HISTORIES) == 16_183


def test_a_snapshot_is_read_backwards_to_its_start(played: Any, snapshots: Any) -> None:
    """Before: a segment of 20 MiB with 3 MiB in use at its start. They are given back, and 5 MiB take their place.

    12 MiB follow them, and 16 MiB open a segment.
    """
    blocks = [(5, "active_allocated"), (12, "active_awaiting_free"), (3, "inactive")]
    last = [
        {"device": 0, "address": 5 * GIB, "total_size": 16 * MIB, "active_size": 16 * MIB, "segment_type": "large",
         "blocks": [{"size": 16 * MIB, "requested_size": 16 * MIB, "state": "active_allocated"}]},
        {"device": 0, "address": 7 * GIB, "total_size": 20 * MIB, "active_size": 17 * MIB, "segment_type": "large",
         "blocks": [{"size": size * MIB, "requested_size": size * MIB, "state": state} for size, state in blocks]},
    ]  # fmt: skip
    history = [
        ("free_requested", 7 * GIB, 3), ("free_completed", 7 * GIB, 3), ("alloc", 7 * GIB, 5),
        ("alloc", 7 * GIB + 5 * MIB, 12), ("segment_alloc", 5 * GIB, 16), ("alloc", 5 * GIB, 16),
    ]  # fmt: skip
    events = [{"action": action, "addr": address, "size": size * MIB} for action, address, size in history]

    record = snapshots.record({"segments": last, "device_traces": [events]}, 0)

    assert record["held"] and len(record["used"].split()) == 1
    assert [played.places(record)[int(record["used"], 16)].size, record["untold"]] == [3 * MIB, False]
    assert played.differences(record) == []


@pytest.mark.parametrize("content", [None, b"", b"a text", pickle.dumps({"segments": []}), pickle.dumps(Path())])
def test_what_is_no_snapshot_is_said_so(
    content: bytes | None, snapshots: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "snapshot.pickle"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr("sys.argv", ["snapshots.py", str(path)])

    with pytest.raises(
        SystemExit, match=r"snapshot\.pickle: .*; it must be what torch.cuda.memory._dump_snapshot wrote"
    ):
        snapshots.main()


def test_a_block_whose_size_nobody_tells_is_noticed(snapshots: Any) -> None:
    """A block of 3 MiB is given back that 1.5 MiB follow: they may be free, or a rest of it and a free block."""
    free, used = 9 * MIB // 2, 31 * MIB // 2
    last = [
        {"device": 0, "address": 0, "total_size": free + used, "active_size": used, "segment_type": "large",
         "blocks": [{"size": free, "requested_size": 0, "state": "inactive"},
                    {"size": used, "requested_size": used, "state": "active_allocated"}]},
    ]  # fmt: skip
    events = [{"action": "free_completed", "addr": 0, "size": 3 * MIB}]

    assert snapshots.record({"segments": last, "device_traces": [events]}, 0)["untold"]


BOTH = "max_split_size_mb:128,expandable_segments:True"


def cycles(allocator: Allocator, count: int, guarded: bool = True) -> Facts:
    """MiB allocated and reserved after each cycle of pytorch/pytorch#193400: 91 and 45.5 MiB, and 2 MiB that stay.

    64 MiB stay from the start.
    """
    handle = itertools.count(1)
    allocator.allocate(next(handle), 64 * MIB)
    facts = []
    for _ in range(count):
        first, second, guard = next(handle), next(handle), next(handle)
        allocator.allocate(first, 91 * MIB)
        allocator.allocate(second, 91 * MIB // 2)
        if guarded:
            allocator.allocate(guard, 2 * MIB)
        allocator.free(first)
        allocator.free(second)
        facts.append((allocator.allocated // MIB, allocator.reserved // MIB))
    return facts


def test_expandable_segments_grow_past_free_blocks_above_max_split_size() -> None:
    """github.com/pytorch/pytorch/pull/193400 and issue 123548: torch 2.12 and 2.13 on a card of 16 GiB."""
    facts = cycles(made(BOTH), 101)

    assert facts[::20] == [(66, 220), (106, 2980), (146, 5760), (186, 8520), (226, 11300), (266, 14060)]


def test_expandable_segments_are_unmapped_when_the_card_is_full() -> None:
    """github.com/ROCm/ROCm/issues/6603: in cycle 115 the allocator has unmapped 115 ranges, and has tried once more.

    The card gave 16,000 of its 16,304 MiB. `num_ooms` is 0.
    """
    allocator = made(BOTH, 16_000 * MIB)
    facts = cycles(allocator, 116)

    assert (facts[100], facts[115]) == ((266, 14060), (296, 2680))
    assert (allocator.reserved_peak, allocator.released, allocator.out_of_memory) == (16_000 * MIB, 115, False)


@pytest.mark.parametrize("text", ["max_split_size_mb:128", "expandable_segments:True", ""])
def test_either_setting_alone_keeps_reserved_below_500_mib(text: str) -> None:
    """The same pull request and issue; 121 cycles, until 306 MiB are allocated."""
    allocator = made(text)

    assert cycles(allocator, 121)[-1][0] == 306
    assert allocator.reserved_peak < 500 * MIB


def test_without_a_block_that_stays_reserved_is_below_500_mib() -> None:
    """The same pull request: what is free at the segment's end can grow, and is used again."""
    allocator = made(BOTH)
    cycles(allocator, 121, guarded=False)

    assert allocator.reserved_peak < 500 * MIB


@pytest.mark.parametrize(
    ("streams", "reserved"),
    [(2, [2] * 20), (32, [*range(2, 33, 2), *[32] * 4])],
)
def test_what_is_freed_on_a_stream_serves_that_stream_alone(streams: int, reserved: list[int]) -> None:
    """github.com/vllm-project/vllm/issues/52950: two buffers of 1 GiB a call, each on the next of so many streams.

    With two new streams a call reserved grew from 2 to 16 GiB in eight calls, and to 32 GiB at most, as torch has 32
    streams; with the same two it stayed at 2.
    """
    allocator, facts, turn = made(), [], itertools.cycle(range(1, streams + 1))
    for call in range(20):
        for buffer in (1, 2):
            allocator.allocate(2 * call + buffer, GIB, stream=next(turn))
        for buffer in (1, 2):
            allocator.free(2 * call + buffer)
        facts.append(allocator.reserved // GIB)

    assert facts == reserved


@pytest.mark.parametrize(("text", "rest", "opened"), [("", 260, 0), ("max_split_size_mb:20", 530, 270)])
def test_a_small_max_split_size_keeps_a_large_block_whole(text: str, rest: int, opened: int) -> None:
    """github.com/vllm-project/vllm/pull/41268: 270 MiB are cut off a free block of 530, or open a segment."""
    allocator = made(text)
    allocator.allocate(1, 530 * MIB)
    allocator.free(1)
    allocator.allocate(2, 270 * MIB)

    assert (allocator.reserved - allocator.allocated) // MIB == rest
    assert allocator.reserved == (530 + opened) * MIB
    allocator.empty_cache()
    assert allocator.reserved == (270 if opened else 530) * MIB  # what stays keeps the rest of its segment


@pytest.mark.parametrize(
    ("text", "asked", "allocated"),
    [
        ("", 84, 84),
        ("roundup_power2_divisions:4", 84, 96),
        ("garbage_collection_threshold:0.5,max_split_size_mb:40", 84, 84),
        ("garbage_collection_threshold:0.5,roundup_power2_divisions:8", 84, 88),
        ("roundup_power2_divisions:2", 400, 512),
        ("roundup_power2_divisions:2", 514, 768),  # github.com/pytorch/pytorch/issues/161139
    ],
)
def test_requests_are_rounded_as_torch_tests_it(text: str, asked: int, allocated: int) -> None:
    """test_allocator_settings: 21 and 100 million floats of 2^20, active_bytes.all.allocated."""
    allocator = made(text)
    allocator.allocate(1, asked * MIB)

    assert (allocator.allocated, allocator.reserved) == (allocated * MIB, allocated * MIB)


def test_256_floats_are_a_kibibyte() -> None:
    """test_memory_stats: 1,024 more active bytes, and as many fewer when they are gone."""
    allocator = made()
    allocator.allocate(1, 256 * 4)
    assert allocator.allocated == KIB
    allocator.free(1)

    assert (allocator.allocated, allocator.allocated_peak) == (0, KIB)


@pytest.mark.parametrize("card", [16 * GIB - 200 * MIB, 80 * GIB - 700 * MIB])
def test_half_a_card_is_given_twice_only_when_the_first_is_back(card: int) -> None:
    """test_out_of_memory_retry: after half of the memory as much again fails; once the first is freed it does not."""
    both = made(capacity=card - 300 * MIB)  # what the driver keeps for itself
    both.allocate(1, card // 2)
    both.allocate(2, card // 2)
    again = made(capacity=card - 300 * MIB)
    again.allocate(1, card // 2)
    again.free(1)
    again.allocate(2, card // 2)

    assert (both.out_of_memory, again.out_of_memory) == (True, False)


@pytest.mark.parametrize(("share", "runs_out"), [(0.499, False), (0.5, True)])
def test_a_share_of_the_card_is_for_what_is_reserved(share: float, runs_out: bool) -> None:
    """test_set_per_process_memory_fraction: of half a card 0.499 can be had beside 1,024 floats, and 0.5 cannot."""
    card = 80 * GIB
    allocator = made(capacity=card // 2)
    allocator.allocate(1, 1024 * 4)
    asked = int(card * share) - (0 if runs_out else allocator.reserved_peak)
    allocator.allocate(2, asked)

    assert allocator.out_of_memory is runs_out


def test_the_first_tensors_of_a_resnet_lie_in_one_segment_of_2_mib() -> None:
    """zdevito.github.io, 2022-12-09, memory traces: sizes and offsets of the first six requests of resnet18.cuda()."""
    allocator = made()
    sizes = [37_632, 256, 256, 256, 256, 8]
    for handle, size in enumerate(sizes, 1):
        allocator.allocate(handle, size)

    assert [allocator.address(handle) for handle in range(1, 7)] == [0, 37_888, 38_400, 38_912, 39_424, 39_936]
    assert allocator.reserved == 2 * MIB
