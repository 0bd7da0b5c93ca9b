"""How many parameters stage 3 has gathered at once: the coordinator's rules, walked over one step of the model.

Followed from runtime/zero/partitioned_param_coordinator.py of DeepSpeed 0.19.8, from the second step on, when it knows
the order of use. A module that starts gathers its tensors, then fetches ahead: along the order of use, past tensors
that are there already, until `stage3_prefetch_bucket_size` elements are on their way or `stage3_max_live_parameters`
are there. A module without tensors fetches ahead too. A tensor is released after its use unless fetching ahead has
passed a later use of it, or one lies within `stage3_max_reuse_distance` elements.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import attrs

from dsgen.buffers import Buffers
from dsgen.memory.activations import AGAIN, BACKWARD, FORWARD
from dsgen.memory.modules import AUTOGRAD, BITSANDBYTES, Held, Module, modules
from dsgen.memory.trained import AFTER, BEFORE
from dsgen.profiles import Model

__all__ = ["Gathered", "gathered"]


class Gathered(NamedTuple):
    """Elements that are gathered at once, persistent ones not among them.

    Attributes:
        places: (block: BEFORE, AFTER, or counted from 0; FORWARD, AGAIN or BACKWARD; where in the block, as a moment of
            activations tells it) -> the most there.
        uses: Index of a tensor among all of the model's -> elements when its gradient has been made.
        packed: When backward has ended: bitsandbytes holds on to the 4-bit weights that its layers got in forward.
    """

    places: dict[tuple[int, int, int], int]
    uses: dict[int, int]
    packed: int

    def at(self, block: int, way: int, place: int = 0) -> int:
        """Elements at a place; before the blocks, at the embedding."""
        return self.places.get((block, way, 2 if block == BEFORE else place), 0)

    def when(self, block: int, index: int) -> int:
        """Elements in backward of a block when the gradient of a tensor has been made, or the most there for -1."""
        if index in self.uses:
            return self.uses[index]
        if block == BEFORE:
            return self.at(block, BACKWARD)
        ways = {key: most for key, most in self.places.items() if key[0] == block and key[1] != FORWARD}
        return max(ways.values(), default=0)


def gathered(
    model: Model,
    method: str,
    lora_rank: int,
    lora_targets: tuple[str, ...],
    tp: int,
    buffers: Buffers,
    checkpointing: bool,
    alone: bool = False,
    chunked: bool = False,
) -> Gathered:
    """What is gathered in one step.

    Args:
        model: The architecture.
        method: full, lora or qlora.
        lora_rank: Rank of the adapters.
        lora_targets: Names of the matrices that get one.
        tp: AutoTP degree.
        buffers: The coordinator's limits, in elements.
        checkpointing: Each block runs forward again before its backward.
        alone: There is one rank: it copies each tensor from the node's RAM by itself.
        chunked: The loss takes the head's weight in its own hands: it is gathered with the model, not with a head.
    """
    limits = (buffers.persistence, buffers.prefetch, buffers.max_live, buffers.max_reuse)
    return _gathered(model, method, lora_rank, lora_targets, tp, *limits, checkpointing, alone, chunked)


class _Event(NamedTuple):
    """A module starts.

    Attributes:
        block: BEFORE, AFTER, or counted from 0.
        module: The module.
        way: FORWARD, AGAIN or BACKWARD.
        stays: Its tensors are not released after it.
        holds: Nor are its frozen ones: those that a block gathers when it runs forward again are released with the
            module whose backward asked for that (fetch_sub_module, update_recompute_parameters).
        leaving: The tensors that are released after it because of that.
    """

    block: int
    module: Module
    way: int
    stays: bool = False
    holds: bool = False
    leaving: tuple[Held, ...] = ()


@functools.lru_cache(maxsize=1024)
def _gathered(
    model: Model,
    method: str,
    lora_rank: int,
    lora_targets: tuple[str, ...],
    tp: int,
    persistence: int,
    prefetch: int,
    max_live: int,
    max_reuse: int,
    checkpointing: bool,
    alone: bool,
    chunked: bool,
) -> Gathered:
    events = _events(model, method, lora_rank, lora_targets, tp, checkpointing, chunked)
    parts = dict(modules(model, method, lora_rank, lora_targets, tp).parts)
    walk = _Walk.over(events, persistence, max_reuse)
    starts, peaks, rests, gone = walk.run(prefetch, max_live, alone)
    kept, left, packed = _kept(events, gone, checkpointing)
    places: dict[tuple[int, int, int], int] = {}
    uses: dict[int, int] = {}
    place = now = 0
    here = BEFORE, FORWARD
    rows = zip(events, starts, peaks, rests, kept, left, strict=True)
    for event, start, peak, rest, before, after in rows:
        block, module, way, stays, *_ = event
        if (block, way) != here:
            place = 3 * sum(one.product for one in parts[block]) if way == BACKWARD else 0
            if block != here[0]:
                places[block, way, place] = now
            here = block, way
        most, now = max(start, peak) + before, rest + after
        if module.product and not stays:
            first = place + 1 if way != BACKWARD else place - 2
            places[block, way, first], places[block, way, first + 1] = start + before, peak + before
            place += 3 if way != BACKWARD else -3
            most = now
        places[block, way, place] = max(places.get((block, way, place), 0), most)
        if way != FORWARD:
            for one in module.tensors:
                uses[one.place] = peak + after  # of two uses of a checkpointed block the later one is its backward
    return Gathered(places, uses, packed)


@functools.lru_cache(maxsize=256)
def _events(
    model: Model,
    method: str,
    lora_rank: int,
    lora_targets: tuple[str, ...],
    tp: int,
    checkpointing: bool,
    chunked: bool,
) -> tuple[_Event, ...]:
    """The modules in order of use in one step."""
    found = modules(model, method, lora_rank, lora_targets, tp)
    everything = sum(held.numel for _, part in found.parts for module in part for held in module.tensors)
    root = Module("", (), everything)
    after = found.parts[-1][1]
    events = [_Event(BEFORE, root, FORWARD)] * found.roots
    outer = [_Event(AFTER, root, BACKWARD)] * (found.roots - 1)
    if chunked:  # nothing that goes into the model asks for a gradient: what it has gathered stays until the end
        whole, after = root._replace(tensors=after[-1].tensors), after[:-1]
        events[0], outer[0] = _Event(BEFORE, whole, FORWARD, True), _Event(AFTER, whole, BACKWARD, True)
    events += [_Event(block, module, FORWARD) for block, part in found.parts[:-1] for module in part]
    events += [_Event(AFTER, module, FORWARD) for module in after]
    head = [] if chunked else [_Event(AFTER, after[-1], BACKWARD)]
    events += [*outer, *head, _Event(AFTER, root, BACKWARD)]
    events += [_Event(AFTER, module, BACKWARD) for module in after[: len(after) - len(head)]][::-1]
    for block, part in found.parts[-2:0:-1]:
        back = _reversed(part)
        if not checkpointing:
            events += [_Event(block, module, BACKWARD) for module in back]
            continue
        asking = found.asking
        if asking is None:
            asking = next(module.name for module in reversed(part) if module.tensors)
        # A module asks for what was not saved: the block runs forward until that is made, and backward goes on. The
        # module's tensors stay in between.
        first = [module.name for module in back].index(asking)
        last = [module.name for module in part].index(asking) if asking else len(part)
        events += [_Event(block, module, BACKWARD, True) for module in back[: first + 1]]
        events += [_Event(block, module, AGAIN, holds=True) for module in part[1:last]]
        leaving = tuple(held for module in part[1:last] for held in module.tensors if held.frozen)
        late = not asking  # the block itself
        rest = [_Event(block, module, BACKWARD, holds=late) for module in (*part[last : last + 1], *back[first + 1 :])]
        rest[-late] = rest[-late]._replace(leaving=leaving)
        events += rest
    if method == "full" or checkpointing:  # frozen embeddings have no backward
        events += [_Event(BEFORE, module, BACKWARD) for module in found.parts[0][1][::-1] if module.tensors]
    return tuple(events)


def _reversed(part: tuple[Module, ...]) -> list[Module]:
    """A block's modules in order of backward: what contains others still comes before them."""
    return [part[place] for place in _turned(tuple(module.name for module in part))]


@functools.lru_cache(maxsize=256)
def _turned(names: tuple[str, ...]) -> tuple[int, ...]:
    made: list[int] = []
    for place in range(len(names) - 1, -1, -1):
        inside = f"{names[place]}." if names[place] else ""
        first = next((at for at, other in enumerate(made) if names[other].startswith(inside)), None)
        made.insert(len(made) if first is None else first, place)
    return tuple(made)


@attrs.define
class _Gather:
    """One all-gather on its way: its elements, how many tensors wait for it, and whether it was copied out."""

    elements: int
    waiting: int
    copied: bool = False


@attrs.frozen(eq=False)
class _Walk:
    """The uses of one step.

    Attributes:
        order: The tensors that are partitioned, in order of use.
        numels: Their elements.
        bounds: Where each event's uses begin.
        steps: The event of each use.
        stays: For each use, whether the tensor stays whatever fetching ahead does.
        leaving: Event -> tensors that are released after it though it does not use them.
    """

    order: list[int]
    numels: list[int]
    bounds: list[int]
    steps: list[int]
    stays: list[bool]
    leaving: dict[int, tuple[Held, ...]]

    @classmethod
    def over(cls, events: Sequence[_Event], persistence: int, max_reuse: int) -> _Walk:
        """The uses of events, and which of them are followed by another within the reuse distance."""
        order: list[int] = []
        numels: list[int] = []
        bounds = [0]
        steps: list[int] = []
        holds: list[bool] = []
        for step, event in enumerate(events):
            for held in event.module.tensors:
                if held.numel > persistence:
                    order.append(held.place)
                    numels.append(held.numel)
                    steps.append(step)
                    holds.append(event.stays or (event.holds and held.frozen))
            bounds.append(len(order))
        # Elements before each event: of a module's own tensors, and of all in and below it, as a whole module counts.
        own, below = [0], [0]
        for event in events:
            size = 0 if event.module.whole else sum(held.numel for held in event.module.tensors)
            own.append(own[-1] + size)
            below.append(below[-1] + event.module.inside)
        stays = [False] * len(order)
        following: dict[int, int] = {}  # tensor -> its next use
        around: dict[int, int] = {}  # block -> the next event that contains it, and that of everything
        for step in range(len(events) - 1, -1, -1):
            event = events[step]
            for use in range(bounds[step], bounds[step + 1]):
                later, passed = following.get(order[use]), own
                if event.module.whole:
                    later, passed = min(around.get(event.block, len(events)), around.get(AFTER, len(events))), below
                near = later is not None and later < len(events) and passed[later] - passed[step + 1] < max_reuse
                stays[use] = holds[use] or near
                following[order[use]] = step
            if not event.module.name:
                around[event.block] = step
        leaving = {step: event.leaving for step, event in enumerate(events) if event.leaving}
        return cls(order, numels, bounds, steps, stays, leaving)

    def run(self, prefetch: int, max_live: int, alone: bool) -> tuple[list[int], list[int], list[int], list[set[int]]]:
        """Elements that are there when each event begins, while it runs, and after it; tensors that are released then.

        Several tensors that are gathered together are copied out of one flat buffer when the first of them is used;
        the buffer stays until the last one is.
        """
        order, numels, bounds = self.order, self.numels, self.bounds
        uses, events = len(order), len(bounds) - 1
        there: set[int] = set()
        coming: dict[int, _Gather] = {}
        marked: dict[int, int] = {}  # tensor -> the event of the last use that fetching ahead has passed
        starts: list[int] = []
        peaks: list[int] = []
        rests: list[int] = []
        released: list[set[int]] = []
        live = ahead = buffers = 0
        for step in range(events):
            begin, end = bounds[step], bounds[step + 1]
            missing = [use for use in range(begin, end) if order[use] not in there]
            if missing:
                found = sum(numels[use] for use in missing)
                live += found
                there.update(order[use] for use in missing)
                if len(missing) > 1 and not alone:  # a single tensor is gathered into its own place
                    together = _Gather(found, len(missing))
                    coming.update((order[use], together) for use in missing)
            most = live + buffers
            for use in range(begin, end):
                gather = coming.pop(order[use], None)
                if gather is None:
                    continue
                if not gather.copied:
                    gather.copied = True
                    buffers += gather.elements
                    most = max(most, live + buffers)
                gather.waiting -= 1
                if not gather.waiting:
                    buffers -= gather.elements
            ahead = max(ahead, end)
            if prefetch and ahead < uses:
                room = min(max_live - live, prefetch)
                begun: list[int] = []
                found = 0
                while ahead < uses and found < room:
                    other = order[ahead]
                    marked[other] = self.steps[ahead]
                    if other not in there:
                        there.add(other)
                        begun.append(other)
                        found += numels[ahead]
                    ahead += 1
                live += found
                if len(begun) > 1 and not alone:
                    together = _Gather(found, len(begun))
                    coming.update((other, together) for other in begun)
            starts.append(most)
            peaks.append(live + buffers)
            gone: set[int] = set()
            for use in range(begin, end):
                tensor = order[use]
                if self.stays[use] or marked.get(tensor, -1) > step:
                    continue
                gone.add(tensor)
                there.discard(tensor)
                live -= numels[use]
            for held in self.leaving.get(step, ()):
                if held.place in there:
                    gone.add(held.place)
                    there.discard(held.place)
                    live -= held.numel
            released.append(gone)
            rests.append(live + buffers)
        return starts, peaks, rests, released


def _kept(events: Sequence[_Event], gone: Sequence[set[int]], checkpointing: bool) -> tuple[list[int], list[int], int]:
    """Elements of released tensors that somebody keeps: while each event runs, when its backward has been, and at last.

    A block that runs forward again saves a second view of each trained weight; else autograd keeps the gathered place
    of those that are not multiplied by torch's linear function. bitsandbytes keeps its own from forward on.
    """
    during, after = [], []
    held = packed = 0
    kept: dict[int, int] = {}
    saving = AGAIN if checkpointing else FORWARD
    for event, released in zip(events, gone, strict=True):
        during.append(held)
        for tensor in event.module.tensors:
            if event.way == BACKWARD and tensor.keeper != BITSANDBYTES:
                held -= kept.pop(tensor.place, 0)
        saved = event.module.tensors if event.way == saving else event.leaving
        for tensor in (*event.module.tensors, *event.leaving) if released else ():
            if tensor.place not in released or tensor.place in kept:
                continue
            mine = tensor.keeper == BITSANDBYTES
            direct = tensor.keeper == AUTOGRAD or (checkpointing and not tensor.frozen)
            if mine or (direct and tensor in saved):
                kept[tensor.place] = tensor.numel
                held += tensor.numel
                packed += tensor.numel if mine else 0
        after.append(held)
    return during, after, packed
