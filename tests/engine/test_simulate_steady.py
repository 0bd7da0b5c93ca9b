"""Whole steps through the allocator until nothing more is reserved, and the least card on which a run goes through."""

from __future__ import annotations

import random

import pytest

from dsgen.allocators.caching import Allocator
from dsgen.allocators.expandable import Expandable
from dsgen.engine.simulate import passes
from dsgen.engine.simulate.ledger import GPU, HOST, Ledger
from dsgen.engine.simulate.results import allocated_and_reserved
from dsgen.engine.simulate.steady import StepRequests, first_unserved, least_card, played

MIB = 2**20


class Written:
    """A ledger that is written by hand: names for storages, sizes in MiB."""

    def __init__(self) -> None:
        self.ledger, self.numbers = Ledger(), dict[str, int]()

    def born(self, name: str, mib: float, place: int = GPU, stream: int = 0) -> None:
        self.numbers[name] = self.ledger.born(int(mib * MIB), place, "other", stream, ("", "", "", ""))

    def died(self, *names: str) -> None:
        for name in names:
            self.ledger.died(self.numbers.pop(name))

    def ends(self, step: int) -> None:
        self.ledger.mark("step" if step else "init", step, 0)

    def run(self) -> StepRequests:
        return StepRequests(self.ledger)


def leaving() -> Written:
    """Each step makes its gradient before it frees the one of the step before; RAM is written between."""
    run = Written()
    run.born("weights", 40)
    run.born("states", 500, HOST)
    run.ends(0)
    for step in (1, 2):
        run.born(f"batch {step}", 8, HOST)
        run.born(f"gradient {step}", 60)
        run.died(f"batch {step}")
        if step > 1:
            run.died(f"gradient {step - 1}")
        run.ends(step)
    return run


def test_a_run_is_cut_before_its_last_step_whatever_ram_does():
    run = leaving().run()

    assert [(code > 0, size // MIB) for code, size, _ in run.before] == [(True, 40), (True, 60)]
    assert [(code > 0, size // MIB) for code, size, _ in run.last] == [(True, 60), (False, 0)]


def test_what_a_step_leaves_stands_for_what_it_freed_of_the_step_before():
    run = leaving().run()
    allocator = Allocator()

    found, growing = played(run, allocator)

    assert run.repeats
    assert len(run.heirs) == 1
    assert (found.reserved_peak_bytes, growing) == ((40 + 60 + 60) * MIB, 0)
    assert allocator.allocated == (40 + 60) * MIB  # after any number of steps: nothing is kept twice, nothing is lost


def test_a_step_that_keeps_more_than_it_frees_is_not_repeated():
    """What grows from step to step has no steady state: it is told as it was simulated, not for ever."""
    grown = Written()
    grown.ends(0)
    for step in (1, 2):
        grown.born(f"kept {step}", 30)
        grown.ends(step)
    run = grown.run()

    found, growing = played(run, Allocator())

    assert not run.repeats
    assert (found.reserved_peak_bytes, growing) == (60 * MIB, 0)


def test_a_step_with_others_streams_or_sizes_than_the_one_before_is_not_repeated():
    for size, stream in ((31, 0), (30, 1)):
        changed = Written()
        changed.born("first", 30)
        changed.ends(1)
        changed.born("second", size, stream=stream)
        changed.died("first")
        changed.ends(2)
        assert not changed.run().repeats


def growing_by_fragments() -> StepRequests:
    """A step whose second turn cannot use the holes of the first: what stays splits the block that the next one needs.

    At the end of the simulated step 20 MiB of the segment of 100 are in use, so the repeated one opens a new segment.
    """
    run = Written()
    run.born("kept 1", 20)
    run.ends(1)
    run.born("large", 100)
    run.died("large")
    run.born("kept 2", 20)  # cut off the segment of 100
    run.died("kept 1")
    run.ends(2)
    return run.run()


def test_steps_are_repeated_until_nothing_more_is_reserved():
    run = growing_by_fragments()
    once, _ = played(run, Allocator(), most=0)
    found, growing = played(run, Allocator())

    assert once.reserved_peak_bytes == (20 + 100) * MIB
    assert found.reserved_peak_bytes == (20 + 100 + 100) * MIB
    assert growing == 1


def test_the_least_card_is_where_the_allocator_has_given_back_all_that_it_can():
    """Segments of 60 and 80 MiB that are never in use together: 140 are reserved, and a card of 80 does."""
    run = Written()
    run.ends(0)
    run.born("small", 60)
    run.died("small")
    run.born("large", 80)
    run.died("large")
    run.ends(1)

    found, _ = played(run.run(), Allocator())

    assert (found.allocated_peak_bytes, found.reserved_peak_bytes) == (80 * MIB, 140 * MIB)
    assert least_card(run.run(), Allocator, {}) <= 82 * MIB
    assert least_card(run.run(), Allocator, {90 * MIB: False}) == 82 * MIB  # what was tried is not tried again


def test_a_split_segment_is_not_given_back_by_default_and_its_free_pages_are_with_expandable_segments():
    """20 of 100 MiB stay in use: by default the other 80 are lost to a request of 100, with pages they are not.

    The segment of 20 MiB goes back before memory runs out, so 200 of the 220 MiB that are reserved do.
    """
    run = growing_by_fragments()

    default, expandable = least_card(run, Allocator, {}), least_card(run, Expandable, {})

    assert 195 * MIB < default <= 202 * MIB
    assert 120 * MIB <= expandable < 150 * MIB


@pytest.mark.parametrize(("card", "ran_out"), [(100, True), (140, True), (198, True), (200, False), (400, False)])
def test_the_answer_agrees_with_the_card_that_was_asked(card, ran_out):
    run = Written()
    run.born("kept 1", 20)
    run.ends(1)
    run.born("large", 100)
    run.died("large")
    run.born("kept 2", 20)
    run.died("kept 1")
    run.ends(2)

    told = allocated_and_reserved(run.ledger, card * MIB)

    assert told["out_of_memory"] is ran_out
    assert (told["least_bytes"] > card * MIB) is ran_out
    assert told["expandable_least_bytes"] <= told["least_bytes"]


def growing() -> Ledger:
    """A large tensor of forward, and in step 2 a small one more that stays; 60, 160 and 180 MiB at most."""
    run = Written()
    run.born("weights", 60)
    run.ends(0)
    for step, more in ((1, 0), (2, 20)):
        run.born("large", 100)
        run.ledger.mark("forward", step, 1)
        run.born(f"kept {step}", more)
        run.died("large")
        run.ledger.mark("step", step, 0)
    return run.ledger


@pytest.mark.parametrize(
    ("card", "phase", "step", "size"),
    [(50, "init", 0, 60), (120, "forward", 1, 100), (160, "step", 2, 20), (400, "step", 2, 20)],
    ids=["weights", "forward", "second step", "a smaller card"],
)
def test_the_first_request_without_room_is_told_with_its_phase(card: int, phase: str, step: int, size: int):
    told = allocated_and_reserved(growing(), card * MIB)

    first = told["shortage"]
    assert (first["phase"], first["step"], first["bytes"] // MIB, first["later"]) == (phase, step, size, False)
    assert (first["capacity_bytes"] == card * MIB) is told["out_of_memory"] is (card < 180)
    assert first["capacity_bytes"] < told["least_bytes"]


def test_what_only_a_repeated_step_lacks_is_said_to_be_of_a_later_one():
    """Of 150 MiB the first 120 are enough for the simulated steps; the second block of 100 is not to be had."""
    run = growing_by_fragments()

    assert first_unserved(run, Allocator(150 * MIB)) == (2, True)  # "large"
    assert first_unserved(run, Allocator(90 * MIB)) == (2, False)
    assert first_unserved(run, Allocator(220 * MIB)) is None


def test_the_settings_of_a_run_are_those_of_its_own_numbers():
    ledger = leaving().ledger

    told = allocated_and_reserved(ledger, 1 << 40, "expandable_segments:True")

    assert told["reserved_peak_bytes"] == told["expandable_reserved_peak_bytes"]
    assert told["least_bytes"] == told["expandable_least_bytes"]


def test_an_emptied_cache_is_emptied_in_every_step():
    """The Trainer's torch_empty_cache_steps: the idle segment goes before the next one is opened."""
    run = Written()
    run.ends(0)
    run.born("forward", 60)
    run.died("forward")
    run.ledger.emptied()
    run.born("backward", 80)
    run.died("backward")
    run.ends(1)

    found, _ = played(run.run(), Allocator())

    assert found.reserved_peak_bytes == 80 * MIB  # 140 where it is not emptied
    assert found.released_segments > 1


def multiplying(last: bool = False) -> Written:
    """An idle segment of 60 MiB, forward's first product, a result of 55 MiB, and backward's first, in each step."""
    run = Written()
    run.born("flat copy", 60)
    run.died("flat copy")
    run.ends(0)
    for step in (1,) if last else (1, 2):
        run.born(f"batch {step}", 8, HOST)
        run.ledger.multiplied(False, 0)
        run.born(f"result {step}", 55)
        run.ledger.multiplied(True, 0)
        run.died(f"batch {step}", f"result {step}")
        run.ends(step)
    return run


def test_a_workspace_is_set_aside_with_the_first_product_of_each_thread_and_stays():
    ledger = multiplying().ledger
    sizes = [(handle, size // MIB) for handle, size, _ in ledger.replay(GPU, 8 * MIB)]

    assert sizes[2:6] == [(0, 8), (3, 55), (0, 8), (-3, 0)]  # handle 2 is the batch's
    assert sum(1 for handle, size, _ in ledger.replay(GPU, 8 * MIB) if not handle) == 2
    assert not [handle for handle, _, _ in ledger.replay(GPU) if not handle]


@pytest.mark.parametrize("last", [False, True], ids=["two steps", "one step, repeated"])
def test_a_workspace_in_an_idle_segment_makes_a_run_reserve_another_and_is_not_counted(last: bool):
    """8 MiB of the 60 are forward's, so the result gets 56 of its own; backward's go into what is left of the 60."""
    run = multiplying(last).ledger

    plain, found = (allocated_and_reserved(run, 1 << 40, workspace_bytes=size * MIB) for size in (0, 8))

    assert plain["reserved_peak_bytes"] == 60 * MIB
    assert found["reserved_peak_bytes"] == (60 - 8 + 56) * MIB
    assert found["allocated_peak_bytes"] == plain["allocated_peak_bytes"] == 60 * MIB
    assert found["growing_steps"] == 0


def test_a_run_with_workspaces_is_cut_before_its_last_step_too():
    run = StepRequests(multiplying().ledger, 8 * MIB)

    assert [(handle, size // MIB) for handle, size, _ in run.last] == [(5, 55), (-5, 0)]
    assert sum(1 for handle, _, _ in run.before if not handle) == 2


def accumulated(seed: int, left: int, more: int = 14) -> StepRequests:
    """Two steps of passes of chance, each of which leaves tensors to the next; all but three only repeat another."""
    chance = random.Random(seed)
    sizes = [chance.choice((0.1, 0.3, 2, 7, 15, 33)) * chance.uniform(0.5, 1.5) for _ in range(12)]
    streams = [chance.choice((0, 0, 0, 1)) for _ in sizes]
    order = sorted(range(len(sizes)), key=lambda one: chance.random())
    run = Written()
    run.born("weights", 100)
    run.born("batch", 8, HOST)
    run.ends(0)
    for step in (1, 2):
        run.born(f"kept {step}", 30)
        if step > 1:
            run.died("kept 1")
        starts = []
        for turn in (1, 2, 3):
            starts.append(passes.Start(run.ledger))
            for number, (size, stream) in enumerate(zip(sizes, streams, strict=True)):
                run.born(f"{number} of {turn}", size, stream=stream)
                if number == 4 and turn > 1:  # what the pass before left
                    run.died(*(f"{old} of {turn - 1}" for old in order[:left]))
            run.born(f"batch {turn}", 1, HOST)
            run.died(f"batch {turn}", *(f"{own} of {turn}" for own in order[left:]))
            if turn == 2:  # the first one had nothing to free of one before
                assert passes.alike(run.ledger, *starts) == (left == 0)
        assert passes.alike(run.ledger, *starts[-2:])
        shift = passes.repeat(run.ledger, *starts[-2:], more)
        for old in order[:left]:
            run.numbers[f"{old} of 3"] += shift
        run.died(*(f"{old} of 3" for old in order[:left]))
        run.ends(step)
    return run.run()


def served(allocator: Allocator) -> int:
    """How many requests it served."""
    return sum(pool.requests for pool in allocator._pools.values())


@pytest.mark.parametrize("kind", [Allocator, Expandable])
@pytest.mark.parametrize("left", [0, 1, 5])
@pytest.mark.parametrize("seed", range(8))
def test_passes_that_repeat_are_served_until_they_go_round(seed: int, left: int, kind: type[Allocator]) -> None:
    run, whole = accumulated(seed, left), accumulated(seed, left)
    assert len(run.turns) == len(run.turns_before) == 1
    whole.turns, whole.turns_before = [], []
    most, _ = played(run, kind())
    for capacity in (None, most.reserved_peak_bytes - 8 * MIB, most.allocated_peak_bytes - 8 * MIB):
        short, long = kind(capacity), kind(capacity)

        said, steps = played(run, short)
        expected, more = played(whole, long)

        assert [getattr(said, name) for name in said.__slots__] == [getattr(expected, name) for name in said.__slots__]
        assert (steps, short.allocated, short.state()) == (more, long.allocated, long.state())
        assert served(short) < served(long) or left == 5  # many of chance may not come back to where they were
        assert least_card(run, kind, {}) == least_card(whole, kind, {})
