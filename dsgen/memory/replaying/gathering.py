"""The requests of parameters that stage 3 gathers and releases, module by module, in the order of the coordinator.

The rules of when are those of dsgen.memory.coordinator; what somebody keeps of a released tensor is as in
dsgen.memory.gathered.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence

from dsgen.memory.activations import AGAIN, AT, BACKWARD, FORWARD
from dsgen.memory.coordinator import TensorUses, Walked
from dsgen.memory.events import ModuleEvent, Step, events, first_asked, graphless, lingering, unasked
from dsgen.memory.gathered import around
from dsgen.memory.modules import AUTOGRAD, BITSANDBYTES, GatheredTensor
from dsgen.memory.replaying.requests import Handle, Requests
from dsgen.memory.replaying.stretches import ASKING
from dsgen.memory.trained import BEFORE

__all__ = ["Gathering"]

_ADAPTER = ".lora_"  # in the name of each of an adapter's modules (peft)


class _Flat:
    """Flat buffers of several tensors, one for each type: the uses as they are copied out, and how many still wait."""

    __slots__ = ("copied", "handles", "uses", "waiting")

    def __init__(self, handles: Sequence[Handle], uses: Sequence[int]) -> None:
        self.handles, self.uses, self.waiting, self.copied = handles, uses, len(uses), False


class Gathering:
    """One pass as the coordinator walks it, from module to module.

    Args:
        requests: Where it asks.
        stream: The stream of what is gathered.
        step: What the order of use depends on.
        uses: The uses of its tensors.
        walk: What is gathered and released when.
        size: Bytes of an element.
        first: It is the first of all: that the loss takes the head in its own hands is not known until it does.
        there: Tensor -> what a pass before has left.
    """

    def __init__(
        self,
        requests: Requests,
        stream: int,
        step: Step,
        uses: TensorUses,
        walk: Walked,
        size: int,
        first: bool,
        there: dict[int, Handle],
    ) -> None:
        self.requests, self.stream, self.step, self.walk, self.size = requests, stream, step, walk, size
        self.events, self.uses = events(step), uses
        self.places, self.last, self.next = _places(step), _last(step), _next(step)
        self.calls: dict[int, list[Sequence[int]]] = {}
        for event, called, _ in walk.gathers:
            self.calls.setdefault(event, []).append(called)
        self.there = dict(there)
        self.coming: dict[int, _Flat] = {}
        self.kept: dict[int, Handle] = {}  # of released tensors, to which somebody still refers
        self.begun = self.over = 0  # events
        self.unknown = first and step.chunked
        self.lent: list[int] = []  # uses of what the loss has asked for itself, which is released when forward is over

    def reach(self, block: int, way: int, matrices: int) -> None:
        """A matrix is used: its module and all before it have begun, and those before it are over."""
        event = self.places.get((block, way, matrices), -1)
        if event >= self.begun:
            self._until(event + 1)

    def leave(self, block: int, way: int, matrices: int) -> None:
        """A matrix has been used; its module is over if it has no other one."""
        event = self.places.get((block, way, matrices), -1)
        if 0 <= event < self.begun and self.last[event] == matrices:
            self._finish(event + 1)

    def go_on(self) -> None:
        """A norm begins, and with it all modules up to the next one with a matrix."""
        if self.begun:
            self._until(self.next[self.begun - 1])

    def embed(self) -> None:
        """What lies before the blocks runs: all but its last module with a tensor is over."""
        self._until(_embedding(self.step))

    def embedded(self) -> None:
        """It has run."""
        self._finish(self.begun)

    def lose(self) -> None:
        """The loss begins: the first time it asks for the head itself, on the stream of the kernels."""
        if self.unknown:
            self.unknown = False
            self.lent = list(itertools.chain(*self.calls.get(0, ())))
            for use in self.lent:
                self.there[self.uses.order[use]] = self.requests.take(self.size * self.uses.extents[use])

    def turn(self) -> None:
        """The backward of what lies before the blocks runs."""
        self._until(len(self.events))

    def end(self, last: bool) -> dict[int, Handle]:
        """The pass is over, and so are its modules; nothing stays but what waits for the next one before a step."""
        self._until(len(self.events))
        self._finish(len(self.events))
        waiting = frozenset() if last else lingering(self.step)
        left = {place: handle for place, handle in self.there.items() if place in waiting}
        gone = (handle for place, handle in self.there.items() if place not in waiting)
        flats = {id(flat): flat.handles for flat in self.coming.values()}
        self.requests.give(*gone, *self.kept.values(), *itertools.chain(*flats.values()))
        return left

    def _until(self, end: int) -> None:
        for event in range(self.begun, end):
            self._finish(event)
            if event or not self.unknown:
                self._begin(event)
        self.begun = end

    def _begin(self, number: int) -> None:
        """A module begins: its tensors are gathered and copied out, then the next ones are fetched."""
        bounds, order, requests = self.uses.bounds, self.uses.order, self.requests
        if self.lent and self.events[number].way == BACKWARD:
            requests.give(*(self.there.pop(order[use], 0) for use in self.lent))
            for use in self.lent:
                self._place(use)
            self.lent = []
        begin, end = bounds[number], bounds[number + 1]
        calls = self.calls.get(number, ())
        for called in calls:
            if called[0] < end:
                self._gather(called)
        for use in range(begin, end):
            flat = self.coming.pop(order[use], None)
            if flat is None:
                continue
            if not flat.copied:
                flat.copied = True
                for other in flat.uses:
                    self._place(other)
            flat.waiting -= 1
            if not flat.waiting:
                requests.give(*flat.handles)
        for called in calls:
            if called[0] >= end:
                self._gather(called)

    def _gather(self, called: Sequence[int]) -> None:
        """One all-gather; adapters in fp32 come apart from what is in 16 bits, and are waited for with it."""
        uses, frozen = self.uses, self.uses.frozen
        if len(called) == 1:
            self._place(called[0])
            return
        order = sorted(called, key=self._made)
        parts = [order]
        if self.step.wide:
            base = [use for use in order if uses.order[use] in frozen]
            parts = [part for part in (base, order[len(base) :]) if part]
        sizes = [self.size * sum([uses.extents[use] for use in part]) for part in parts]
        flat = _Flat([self.requests.take(size, self.stream) for size in sizes], order)
        self.coming.update((uses.order[use], flat) for use in called)

    def _made(self, use: int) -> tuple[bool, int]:
        """The order in which DeepSpeed numbered the tensors: adapters behind all that is under zero.Init."""
        place = self.uses.order[use]
        return place not in self.uses.frozen, place

    def _place(self, use: int) -> None:
        taken = self.requests.take(self.size * self.uses.extents[use], self.stream)
        self.there[self.uses.order[use]] = taken

    def _finish(self, end: int) -> None:
        for number in range(self.over, end):
            event = self.events[number]
            if event.way == BACKWARD:
                for tensor in event.over or (() if event.module.late else event.module.tensors):
                    if tensor.keeper != BITSANDBYTES:
                        self.requests.give(self.kept.pop(tensor.place, 0))
            if event.closes:
                self.requests.give(*self.kept.values())
                self.kept.clear()
            self._release(event, self.walk.released[number])
        self.over = max(self.over, end)

    def _release(self, event: ModuleEvent, released: frozenset[int]) -> None:
        saving = AGAIN if self.step.checkpointing else FORWARD
        saved = (*event.module.tensors, *event.over) if event.way == saving else event.leaving
        for tensor in (*event.module.tensors, *event.over, *event.leaving):
            place = tensor.place
            if place not in released or place not in self.there or place in self.kept:
                continue
            if self._keeps(tensor, event, tensor in saved):
                self.kept[place] = self.there.pop(place)
        self.requests.give(*(self.there.pop(place, 0) for place in released))

    def _keeps(self, tensor: GatheredTensor, event: ModuleEvent, saved: bool) -> bool:
        step = self.step
        if graphless(step, event):
            return False
        if tensor.frozen:
            begin = first_asked(step)
            if BEFORE < event.block < begin or (event.block == begin and event.module.name in unasked(step)):
                return False
        direct = tensor.keeper == AUTOGRAD or (step.checkpointing and not tensor.frozen and not step.reentrant)
        return tensor.keeper == BITSANDBYTES or (direct and saved)


@functools.lru_cache(maxsize=64)
def _places(step: Step) -> Mapping[tuple[int, int, int], int]:
    """(block, way, matrices before it) of each matrix that is used -> the event of its module."""
    places: dict[tuple[int, int, int], int] = {}
    for number, (_, _, used, later, _) in enumerate(around(step)):
        for block, way, matrices, stage in filter(None, (used, *later)):
            if stage == AT:
                places[block, way, matrices] = number
    places.update(
        ((event.block, AGAIN, ASKING), number)
        for number, (event, behind) in enumerate(itertools.pairwise(events(step)))
        if event.way == BACKWARD and behind.way == AGAIN
    )
    return places


@functools.lru_cache(maxsize=64)
def _last(step: Step) -> Mapping[int, int]:
    """Event -> the matrices before the one of its module that is used last."""
    last: dict[int, int] = {}
    for (_, way, matrices), event in _places(step).items():
        before = last.setdefault(event, matrices)
        last[event] = min(before, matrices) if way == BACKWARD else max(before, matrices)
    return last


@functools.lru_cache(maxsize=64)
def _next(step: Step) -> Sequence[int]:
    """For each event, those up to the next module with a matrix: the others begin as soon as it is over."""
    made = events(step)
    ends = list(range(1, len(made) + 1))
    for number in range(len(made) - 2, -1, -1):
        here, behind = made[number], made[number + 1]
        along = here.way == behind.way and (here.way == FORWARD or here.block == behind.block)
        cast = _ADAPTER in behind.module.name  # what goes into an adapter is cast before it
        if along and not behind.module.product and not behind.stays and not cast:
            ends[number] = ends[number + 1]
    return ends


@functools.lru_cache(maxsize=64)
def _embedding(step: Step) -> int:
    """Events of forward up to the last module with a tensor that lies before the blocks."""
    ahead = itertools.takewhile(lambda event: event.block == BEFORE, events(step))
    return max((number + 1 for number, event in enumerate(ahead) if event.module.tensors), default=0)
