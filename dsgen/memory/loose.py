"""Gradients of stages 1 and 2 that wait where they were made: `contiguous_gradients` is off, and there is no bucket.

Followed from the code of DeepSpeed 0.19.8 (runtime/zero/stage_1_and_2.py: reduce_ipg_grads, allreduce_no_retain,
_clear_previous_reduced_grads). Those that fill a bucket are reduced in a flat copy of them. Stage 1 keeps all until the
step. Stage 2 keeps those of which this rank has a share; the others go at once, or with `overlap_comm` when the next
ones are reduced.
"""

import bisect
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from dsgen.memory.activations import Activity
from dsgen.memory.backward import Load, start
from dsgen.memory.buckets import Runs, arrivals
from dsgen.memory.cuts import reaches
from dsgen.memory.moments import Moment, ResidentStates, moment
from dsgen.memory.states import States
from dsgen.memory.together import Together
from dsgen.memory.trained import BEFORE, Trained
from dsgen.strategies.buffers import Buffers

__all__ = ["loose"]


class _Filled(NamedTuple):
    """Elements of one reduction.

    Attributes:
        block, place, tensor: As of a `Flush`.
        waiting: Of the gradients in it.
        copied: Of the flat copy, 0 where there is one gradient.
        current: Of the gradient that did not fit.
        done: Of earlier reductions.
        own: Of this rank's own among those.
        left: Of those of the reduction before that are not its own.
    """

    block: int
    place: int
    tensor: int
    waiting: int
    copied: int
    current: int
    done: int
    own: int
    left: int


def loose(
    states: States,
    stage: int,
    buffers: Buffers,
    accumulates: bool,
    both: Together,
    held: ResidentStates,
    loaded: Callable[[Load, ResidentStates], Moment],
) -> Iterator[Moment]:
    """The moments of backward.

    Args:
        states: The states.
        stage: 1 or 2.
        buffers: Element counts of the communication buffers.
        accumulates: Gradients of earlier passes are there.
        both: What lives beside them.
        held: What is there all the time.
        loaded: Makes a moment of gradients.
    """
    size, tensors, overlaps = states.size, states.tensors, buffers.overlap_comm
    prior = start(states, stage, buffers, accumulates)[0]
    first, inputs = both.active.first, both.active.inputs[1]
    beside = stage == 2 or overlaps
    made, ends, sums = _filled(tensors, buffers.reduce_bucket, states.ranks, both.runs if beside else None, overlaps)
    yield moment("backward", held, prior + first.fresh, 0, 0, 0, first, inputs)
    for alive in _everywhere(both):
        there = 0 if accumulates else alive.gradients
        if stage == 2:
            there = size * sums[bisect.bisect_right(ends, alive.gradients // size) - 1]
        yield moment("backward", held, prior + there + alive.fresh, 0, 0, 0, alive, inputs)
    for one in made:
        place = (one.block, one.place) if beside else (BEFORE, -1)
        there, fresh = one.own + one.waiting, one.current
        if stage == 1:
            there = 0 if accumulates else one.done + one.waiting if beside else tensors.elements
            fresh = 0 if accumulates or not beside else fresh
        load = Load(*place, prior + size * there, size * one.copied, size * fresh, 0, one.tensor if beside else -1)
        here = loaded(load, held)
        if stage == 1 and accumulates and here.alive is not None:  # the last gradient has been added to its sum
            added = here.alive.fresh
            here = here._replace(fixed=here.fixed - added, gradients=here.gradients - added)
        yield here
        if stage == 2 and one.left > one.copied:
            yield loaded(load._replace(gradients=load.gradients + size * one.left, buckets=0), held)


@functools.lru_cache(maxsize=1024)
def _filled(
    trained: Trained, bucket: int, ranks: int, runs: Runs | None, overlaps: bool
) -> tuple[list[_Filled], list[int], list[int]]:
    """The reductions; elements handed over with each gradient, and those that stage 2 has then.

    Args:
        trained: The trained tensors.
        bucket: Elements that are reduced together.
        ranks: Ranks that each group of tensors is cut among.
        runs: As for `arrivals`; None for the order of the model.
        overlaps: What was reduced goes with the next reduction.
    """
    made: list[_Filled] = []
    ends, sums = [0], [0]
    waiting = mine = count = done = own = left = 0

    def reduce(block: int, place: int, tensor: int, current: int) -> None:
        nonlocal waiting, mine, count, done, own, left
        if count:
            made.append(_Filled(block, place, tensor, waiting, waiting * (count > 1), current, done, own, left))
            done, own, left = done + waiting, own + mine, waiting - mine if overlaps else 0
            waiting = mine = count = 0

    order = [(index, 0) for index in range(len(trained.numels))] if runs is None else arrivals(trained, runs)
    for index, place in order:
        numel = trained.numels[index]
        if waiting + numel > bucket:
            reduce(trained.blocks[index], place, index, numel)
        waiting, count = waiting + numel, count + 1
        mine += numel if reaches(trained, ranks, index) else 0
        ends.append(ends[-1] + numel)
        sums.append(own + left + waiting)
    reduce(BEFORE, -1, -1, 0)
    return made, ends, sums


def _everywhere(both: Together) -> Iterator[Activity]:
    """Moments of backward in every block: what waits rises and falls along them."""
    runs = both.active.blocks
    layers = sum(run.repeats for run in runs)
    last = dict(zip(itertools.accumulate(run.repeats for run in runs), runs, strict=True))
    for alive in both.active.backward:
        yield alive
        run = last.get(layers - alive.blocks) if alive.where == "block" else None
        if run is not None:
            yield from (alive.without(behind, run.kept, run.gradients) for behind in range(1, run.repeats - 1))
