"""The simulation's record of storages: phases, peaks, parts that add up, and what is largest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgen.engine.simulate.ledger import GPU, HOST, KINDS, Ledger
from dsgen.engine.simulate.results import describe

NOTE = ("aten.empty", "somewhere", "bfloat16", "(2,)")


def test_peak_and_end_of_a_phase():
    ledger = Ledger()
    kept = ledger.born(100, GPU, "weights", 0, NOTE)
    passing = ledger.born(50, GPU, "activations", 0, NOTE)
    ledger.born(7, HOST, "offload buffers", 0, NOTE)
    ledger.died(passing)
    ledger.mark("forward", 1, 1)
    ledger.died(kept)
    ledger.mark("step", 1, 0)

    forward, step = ledger.phases()

    assert (forward.name, forward.step, forward.micro_batch) == ("forward", 1, 1)
    assert forward.peak[GPU].named() == {"weights": 100, "activations": 50}
    assert forward.end[GPU].named() == {"weights": 100}
    assert forward.peak[HOST].total == forward.end[HOST].total == 7
    assert step.peak[GPU].total == 100
    assert step.end[GPU].named() == {}


def test_a_storage_is_renamed_from_its_birth_on():
    ledger = Ledger()
    number = ledger.born(10, GPU, "temporaries", 0, NOTE)
    ledger.mark("backward", 1, 1)
    ledger.rename(number, "gradients")

    assert ledger.phases()[0].peak[GPU].named() == {"gradients": 10}


def test_equal_storages_are_listed_together_largest_first():
    ledger = Ledger()
    for _ in range(3):
        ledger.born(10, GPU, "activations", 0, NOTE)
    ledger.born(20, GPU, "weights", 0, NOTE)
    gone = ledger.born(1000, GPU, "weights", 0, NOTE)
    ledger.died(gone)

    found = ledger.largest(GPU, len(ledger.events), 10)

    assert [(one["kind"], one["bytes"], one["count"]) for one in found] == [("activations", 30, 3), ("weights", 20, 1)]
    assert found[0]["operator"] == "aten.empty"


def test_an_allocator_sees_one_place_and_when_its_cache_is_emptied():
    ledger = Ledger()
    number = ledger.born(600, GPU, "weights", 3, NOTE)
    ledger.born(5, HOST, "weights", 0, NOTE)
    ledger.emptied()
    ledger.died(number)

    assert list(ledger.replay(GPU)) == [(1, 600, 3), (0, 0, 0), (-1, 0, 0)]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("born"), st.integers(0, 9), st.integers(0, 1), st.sampled_from(KINDS)),
            st.tuples(st.just("died"), st.integers(0, 30)),
            st.tuples(st.just("mark")),
            st.tuples(st.just("emptied")),
        ),
        max_size=60,
    )
)
def test_parts_add_up_and_no_moment_is_above_the_peak(steps):
    ledger = Ledger()
    alive: list[int] = []
    live = {GPU: 0, HOST: 0}
    tops: list[dict[int, int]] = []
    top = dict(live)
    for step, *rest in steps:
        if step == "born":
            size, place, kind = rest
            alive.append(ledger.born(size, place, kind, 0, NOTE))
            live[place] += size
        elif step == "died" and alive:
            number = alive.pop(rest[0] % len(alive))
            live[ledger.places[number]] -= ledger.sizes[number]
            ledger.died(number)
        elif step == "mark":
            ledger.mark("phase", 0, 0)
            tops.append(top)
            top = dict(live)
        elif step == "emptied":
            ledger.emptied()
        top = {place: max(top[place], live[place]) for place in live}
    ledger.mark("last", 0, 0)
    tops.append(top)

    phases = ledger.phases()

    for place in (GPU, HOST):
        assert [phase.peak[place].total for phase in phases] == [one[place] for one in tops]
        assert phases[-1].end[place].total == live[place]
        for phase in phases:
            assert sum(phase.peak[place].named().values()) == phase.peak[place].total


@pytest.mark.parametrize("points", [1, 3, 50])
def test_the_highest_sample_of_a_timeline_is_the_peak(points):
    ledger = Ledger()
    for size in (3, 9, 4):
        ledger.died(ledger.born(size, GPU, "activations", 0, NOTE))
        ledger.born(1, GPU, "weights", 0, NOTE)
        ledger.mark("forward", 1, 1)

    samples = ledger.timeline(GPU, points)

    assert max(sum(sample["parts"].values()) for sample in samples) == max(p.peak[GPU].total for p in ledger.phases())
    assert [sample["event"] for sample in samples] == sorted(sample["event"] for sample in samples)


def test_a_result_names_the_phase_of_the_peak_and_counts_page_locked_memory():
    ledger = Ledger()
    ledger.pinned.add(ledger.born(600, HOST, "offload buffers", 0, NOTE))
    ledger.mark("load", 0, 0)
    ledger.born(3000, GPU, "weights", 0, NOTE)
    ledger.mark("init", 0, 0)

    found = describe(ledger, 2**30)

    assert found["phases"][found["peak"]["gpu"]["phase"]]["phase"] == "init"
    assert found["peak"]["gpu"]["parts"] == {"weights": 3000}
    assert found["peak"]["host"]["pinned"] == {"bytes": 600, "reserved_bytes": 1024}
    assert found["peak"]["gpu"]["allocator"]["allocated_peak_bytes"] == 3072
    assert found["peak"]["gpu"]["allocator"]["reserved_peak_bytes"] == 2 * 2**20


def test_page_locked_memory_that_is_freed_stays_and_counts_where_the_process_holds_most():
    ledger = Ledger()
    for size in (600, 700):
        number = ledger.born(size, HOST, "weights", 0, NOTE)
        ledger.pinned.add(number)
        if size == 600:
            ledger.died(number)
    ledger.pinned.add(ledger.born(5000, HOST, "gradients", 0, NOTE))
    ledger.born(100, HOST, "optimizer states", 0, NOTE)
    ledger.mark("init", 0, 0)

    host = describe(ledger, 2**30)["peak"]["host"]
    bound = describe(ledger, 2**30, "pinned_max_cached_size_mb:0")["peak"]["host"]

    assert bound["pinned"] == {"bytes": 5700, "reserved_bytes": 5700}
    assert host["bytes"] == 5800
    # 700 gets the block of 600, as both are one of 1024; nothing else does.
    assert host["pinned"] == {"bytes": 5700, "reserved_bytes": 1024 + 8192}
