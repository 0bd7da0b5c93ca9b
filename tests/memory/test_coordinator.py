"""The rules of gathering, followed by hand over a few tensors of 10 elements."""

from __future__ import annotations

import pytest
from tries import all_of_them

import dsgen
from dsgen import catalog
from dsgen.memory.activations import AT, FORWARD, Position
from dsgen.memory.coordinator import TensorUses
from dsgen.memory.events import Step, events
from dsgen.memory.gathered import Gathered, uses_of

NEVER = 1 << 62
# A model that extends another is one more size of its kind, whose tensors go by the same rules: those are of the night.
MODELS = catalog.names("model", whole=not all_of_them())


def uses(count: int, nears: list[int] | None = None, later: dict[int, list[int]] | None = None) -> TensorUses:
    """One tensor of 10 elements in each of so many events, none of them used again unless `nears` says so."""
    each, order = [10] * count, list(range(count))
    none: frozenset[int] = frozenset()
    bounds = list(range(count + 1))
    return TensorUses(order, each, each, bounds, order, nears or [NEVER] * count, {}, none, none, none, later or {})


def gathered(prefetch: int = 0, max_live: int = 1000, max_reuse: int = 0, nears: list[int] | None = None) -> list[int]:
    """Elements there while each of four events runs, where each tensor is gathered into its own place."""
    return uses(4, nears).run(prefetch, max_live, max_reuse, True)[1]


def test_without_fetching_ahead_a_tensor_is_there_while_it_is_used():
    assert gathered() == [10, 10, 10, 10]


@pytest.mark.parametrize(("prefetch", "ahead"), [(1, 1), (10, 1), (11, 2), (20, 2), (21, 3), (1000, 3)])
def test_fetching_ahead_ends_when_as_many_elements_as_wanted_are_on_their_way(prefetch, ahead):
    """`stage3_prefetch_bucket_size` is reached, not passed: the tensor that reaches it is the last."""
    assert gathered(prefetch)[0] == 10 + 10 * ahead


@pytest.mark.parametrize(("max_live", "most"), [(10, 10), (11, 20), (20, 20), (21, 30)])
def test_fetching_ahead_ends_when_as_many_elements_live_as_may(max_live, most):
    assert max(gathered(1000, max_live)) == most


def test_tensors_that_are_gathered_together_are_in_a_flat_buffer_too_until_the_last_is_used():
    """Two are fetched beside the first use, and copied out beside the second: 20 of them, and 20 of the buffer."""
    assert uses(3).run(20, 1000, 0, False)[1] == [30, 40, 10]


def test_each_gather_is_told_with_what_it_takes():
    """Two are fetched together while the first one runs, which was gathered by itself."""
    assert uses(3).run(20, 1000, 0, False).gathers == [(0, [0], False), (0, [1, 2], False)]


@pytest.mark.parametrize(("distance", "there"), [(5, [10, 10, 10, 10]), (6, [10, 20, 20, 20])])
def test_a_tensor_that_is_used_again_soon_stays(distance, there):
    """The next use of the first lies 5 elements away: within the distance where that is less than it."""
    assert gathered(max_reuse=distance, nears=[5, NEVER, NEVER, NEVER]) == there


def test_a_tensor_whose_layer_reads_its_type_stays_until_that_layer_is_over():
    """The first of two of an adapter is released beside the second one."""
    assert uses(3, later={1: [0]}).run(0, 1000, 0, True)[1] == [10, 20, 10]
    assert uses(3, later={2: [0]}).run(0, 1000, 0, True)[1] == [10, 20, 20]


def test_of_blocks_before_one_those_count_that_hold_more_than_all_between():
    """A block that has no such place, as a dense one among experts, gathers nothing there."""
    place = Position(1, AT)
    held = {(3, FORWARD, *place): 5, (1, FORWARD, *place): 7, (0, FORWARD, *place): 6}
    found = Gathered(held, {}, 0, {}, {}, {}, {})

    assert found.higher(3, FORWARD, place, 3) == ((2, 7),)
    assert found.higher(3, FORWARD, place, 3, every=True) == ((1, 0), (2, 7), (3, 6))
    assert Gathered({}, {}, 0, {}, {}, {}, {}).higher(3, FORWARD, place, 3) == ()


@pytest.mark.parametrize("name", MODELS)
def test_uses_without_those_that_persist_are_those_of_the_same_events(name: str) -> None:
    """What is released later than its event, as adapters are, too; and adapters in fp32 take twice as much there."""
    model = dsgen.job(dsgen.profile("h200-141g") | dsgen.profile(name)).model
    for method, rank in (("full", 0), ("lora", 8)):
        for checkpointing in (False, True):
            step = Step(model, method, rank, ("all-linear",) if rank else (), 1, checkpointing=checkpointing)
            for persistence in (0, 10_000, 1_000_000):
                expected = TensorUses.over(events(step), persistence, step.wide, False)

                assert uses_of(step, persistence) == expected
                assert uses_of(step, persistence, True).without(persistence) == expected
                if rank:
                    wide = step._replace(wide=True)
                    for anew in (False, True):
                        expected = TensorUses.over(events(step), persistence, True, anew)
                        assert uses_of(wide, persistence, anew) == expected
