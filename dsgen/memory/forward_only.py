"""What stage 3 has gathered while only forward runs, as in an evaluation, and what that leaves for training.

Followed from runtime/zero/partitioned_param_coordinator.py of DeepSpeed 0.19.8. A forward alone follows the order of
use that training has recorded, as far as it goes. What it keeps for a backward that does not come is still there when
the next pass begins, and `reset_step` counts from zero: so the next pass fetches as much again.
"""

import functools
from typing import NamedTuple

from dsgen.memory.activations import FORWARD
from dsgen.memory.coordinator import TensorUses, Walked
from dsgen.memory.events import Step, events
from dsgen.memory.gathered import Gathered, Where, around, row_places, uses_of, walked
from dsgen.memory.trained import AFTER

__all__ = ["ForwardOnly", "forward_only"]

PASSES = 8  # forward passes until nothing changes: the second one is like all later ones in most models


class ForwardOnly(NamedTuple):
    """What is gathered, in elements of a weight.

    Attributes:
        gathered: At the places of a forward, in the highest of several passes.
        behind: When the forward is over, in the highest of them.
        left: That the next pass of training has more than any other one where logits and loss are made.
    """

    gathered: Gathered
    behind: int
    left: int


@functools.lru_cache(maxsize=256)
def forward_only(step: Step, limits: tuple[int, int, int, int], alone: bool) -> ForwardOnly:
    """Several forward passes after a step of training, and the first pass of the step that follows.

    Args:
        step: A step of training.
        limits: The coordinator's, in elements: persistence, prefetch, most live, most until reuse.
        alone: There is one rank.
    """
    steps = events(step)
    until = next((number for number, event in enumerate(steps) if event.way != FORWARD), len(steps))
    usual = walked(step, limits, alone)
    uses = uses_of(step, limits[0])
    held: frozenset[int] = frozenset()
    seen: set[frozenset[int]] = set()
    places: dict[Where, int] = {}
    behind = 0
    for _ in range(PASSES):
        walk = uses.run(*limits[1:], alone, decided=usual.released, held=held, until=until)
        for place, elements in _places(step, walk).items():
            places[place] = max(elements, places.get(place, 0))
        behind = max([behind, *walk.rests[:until][-1:]])
        held = _left(uses, walk, held)
        if held in seen:
            break
        seen.add(held)
    after = uses.run(*limits[1:], alone, decided=usual.released, held=held)
    rows = zip(steps, after.peaks, usual.peaks, strict=True)
    left = max((more - one for event, more, one in rows if event.block == AFTER), default=0)
    return ForwardOnly(Gathered(places, {}, 0, {}, {}, {}, {}), behind, left)


def _left(uses: TensorUses, walk: Walked, held: frozenset[int]) -> frozenset[int]:
    """The tensors that are there when the pass behind a walk begins: what is still on its way is released first."""
    there, on_their_way = set(held), set[int]()
    gathers = iter((*walk.gathers, (len(walk.released), (), False)))
    number, now, _ = next(gathers)
    for event, gone in enumerate(walk.released):
        while number == event:
            tensors = [uses.order[use] for use in now]
            there.update(tensors)
            on_their_way.update(tensors)
            number, now, _ = next(gathers)
        on_their_way.difference_update(uses.order[uses.bounds[event] : uses.bounds[event + 1]], gone)
        there -= gone
    return frozenset(there - on_their_way)


def _places(step: Step, walk: Walked) -> dict[Where, int]:
    """What is there at the places of a forward."""
    places: dict[Where, int] = {}
    now = 0
    for row, event, start, peak, rest in zip(
        around(step), events(step), walk.starts, walk.peaks, walk.rests, strict=False
    ):
        entered, *_, behind = row
        if entered:
            places[entered] = now
        now = rest
        most = row_places(places, row, event, start, peak, peak, rest)
        if most > places.get(behind, -1):
            places[behind] = most
    return places
