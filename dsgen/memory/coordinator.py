"""The rules by which DeepSpeed gathers tensors at stage 3, fetches ahead and releases them, walked over one step.

Followed from runtime/zero/partitioned_param_coordinator.py of DeepSpeed 0.19.8 (fetch_sub_module, release_sub_module,
__params_to_release), from the second step on, when it knows the order of use.
"""

import bisect
from collections.abc import Collection, Sequence
from typing import NamedTuple

from dsgen.memory.activations import BACKWARD
from dsgen.memory.events import ModuleEvent
from dsgen.memory.modules import GatheredTensor
from dsgen.memory.trained import AFTER

__all__ = ["TensorUses", "Walked"]


_READ = ".lora_A.default"  # the end of the name of a module whose tensor's type the layer around it reads (peft)
_NEVER = 1 << 62  # elements
_NOTHING: frozenset[int] = frozenset()


class _Gather:
    """One all-gather on its way: what it takes, how many tensors wait for it, and whether it was copied out."""

    __slots__ = ("copied", "extent", "waiting")

    def __init__(self, extent: int, waiting: int) -> None:
        self.extent, self.waiting, self.copied = extent, waiting, False


class Walked(NamedTuple):
    """A step as the coordinator's rules make it; the first four have an entry for each event.

    Attributes:
        starts: What is there when it begins, in elements of a weight.
        peaks: The most while it runs.
        rests: What is there after it.
        released: Tensors that are released then.
        gathers: Event, uses that are gathered in one call, and whether they come from hpZ's second shares.
    """

    starts: list[int]
    peaks: list[int]
    rests: list[int]
    released: list[frozenset[int]]
    gathers: list[tuple[int, Sequence[int], bool]]


class TensorUses(NamedTuple):
    """The uses of one step.

    Attributes:
        order: The tensors that are partitioned, in order of use.
        numels: Their elements.
        extents: What they take, in elements of a weight.
        bounds: Where each event's uses begin.
        steps: The event of each use.
        nears: For each use, elements that are used before the tensor is again: -1 if it stays whatever comes.
        leaving: Event -> tensors that are released after it though it does not use them.
        frozen: Those of them without a gradient.
        split: Those that are cut among other ranks than the rest, and so gathered apart.
        wholes: Events that gather a module with everything below, in no order: any buffer may be copied out first.
        later: Event -> the uses before it whose tensors are only released then: an adapter's first one, whose type is
            read by the layer around it, when that layer is over; what peft's wrappers of parameters hold.
        inner: Events inside of the one before, whose tensors are there as long: the activation function of experts.
    """

    order: list[int]
    numels: list[int]
    extents: list[int]
    bounds: list[int]
    steps: list[int]
    nears: list[int]
    leaving: dict[int, tuple[GatheredTensor, ...]]
    wholes: frozenset[int]
    frozen: frozenset[int]
    split: frozenset[int]
    later: dict[int, list[int]]
    inner: frozenset[int] = frozenset()

    @classmethod
    def over(cls, events: Sequence[ModuleEvent], persistence: int, wide: bool, anew: bool) -> "TensorUses":
        """The uses of events.

        Args:
            events: The modules in order of use.
            persistence: Elements up to which a tensor is never partitioned.
            wide: As in a step.
            anew: Those tensors are not there yet: they are gathered like all others, and stay.
        """
        order: list[int] = []
        numels: list[int] = []
        extents: list[int] = []
        bounds = [0]
        steps: list[int] = []
        holds: list[bool] = []
        frozen: set[int] = set()
        split: set[int] = set()
        later: dict[int, list[int]] = {}
        newest: dict[int, int] = {}  # tensor -> its last use by now
        waiting: dict[int, bool] = {}  # use that waits for what is inside of its module -> whether it stays even then
        inner: set[int] = set()
        until: dict[int, int] = {}  # use -> the event after which it may be released
        # Elements before each event: of a module's own tensors, and of all in and below it, as a whole module counts.
        own, below = [0], [0]
        for step, event in enumerate(events):
            block, module, way, stays, keeps, _, _, closed, _ = event
            name, tensors, inside, whole, _, second, late = module
            size, begin = 0, len(order)
            over = _over(events, step) if name.endswith(_READ) else step
            if second and not late and step + 1 < len(events) and _within(events[step + 1], event):
                inner.add(step + 1)
            for held in tensors:
                place, numel, _, is_frozen, read, is_split, free = held
                size += numel
                if is_frozen:
                    frozen.add(place)
                if is_split:
                    split.add(place)
                persists = numel <= persistence
                if anew or not persists:
                    use = len(order)
                    if over > step:
                        later[over], until[use] = [use], over
                    newest[place] = use
                    order.append(place)
                    numels.append(numel)
                    extents.append(0 if free else 2 * numel if wide and not is_frozen else numel)
                    steps.append(step)
                    holding = persists or stays or (read and way == BACKWARD) or (keeps and is_frozen)
                    if late:
                        waiting[use] = holding
                    holds.append(holding or late)
            if closed:
                closing = {newest[held.place] for held in closed if held.place in newest}
                for use in closing:
                    holds[use] = waiting[use]
                closing = {use for use in closing if use < begin}
                if closing:
                    later[step] = sorted(closing)
                    until.update(dict.fromkeys(closing, step))
            bounds.append(len(order))
            own.append(own[-1] + (0 if whole else size))
            below.append(below[-1] + inside)
        nears = [_NEVER] * len(order)
        following: dict[int, int] = {}  # tensor -> its next use
        around: dict[int, int] = {}  # block -> the next event that contains it, and that of everything
        for step in range(len(events) - 1, -1, -1):
            event = events[step]
            block, module = event[:2]
            begin, end = bounds[step], bounds[step + 1]
            if begin < end:
                passed, contained = own, None
                if module.whole:
                    passed = below
                    contained = min(around.get(block, len(events)), around.get(AFTER, len(events)))
                ends = passed[step + 1]
                for use in range(begin, end):
                    place = order[use]
                    again = following.get(place) if contained is None else contained
                    if holds[use]:
                        nears[use] = -1
                    elif again is not None and again < len(events):
                        nears[use] = passed[again] - (passed[until[use] + 1] if use in until else ends)
                    following[place] = step
            if not module.name:
                around[block] = step
        leaving = {
            step: tuple(held for held in event.leaving if held.numel > persistence)
            for step, event in enumerate(events)
            if event.leaving
        }
        wholes = frozenset(step for step, event in enumerate(events) if event.module.whole)
        sets = frozenset(frozen), frozenset(split)
        return cls(order, numels, extents, bounds, steps, nears, leaving, wholes, *sets, later, frozenset(inner))

    def without(self, persistence: int) -> "TensorUses":
        """These uses without those of the tensors that are never partitioned, which are there from the first step on.

        What `over` says of the same events, in an eighth of its time.
        """
        left = [use for use, numel in enumerate(self.numels) if numel > persistence]
        places = {use: place for place, use in enumerate(left)} if self.later else {}
        later = {step: [places[use] for use in late if use in places] for step, late in self.later.items()}
        later = {step: late for step, late in later.items() if late}
        columns = [[column[use] for use in left] for column in (self.order, self.numels, self.extents)]
        bounds = [bisect.bisect_left(left, bound) for bound in self.bounds]
        steps, nears = ([column[use] for use in left] for column in (self.steps, self.nears))
        order, numels, extents = columns
        uses = self._replace(order=order, numels=numels, extents=extents, bounds=bounds, steps=steps, nears=nears)
        return uses._replace(later=later)

    def widened(self) -> "TensorUses":
        """These uses where what is trained takes twice what it has elements, as adapters in fp32 do."""
        frozen = self.frozen
        each = zip(self.order, self.extents, strict=True)
        return self._replace(extents=[extent if place in frozen else 2 * extent for place, extent in each])

    def run(
        self,
        prefetch: int,
        max_live: int,
        max_reuse: int,
        alone: bool,
        copying: bool = False,
        decided: Sequence[frozenset[int]] | None = None,
        held: Collection[int] = (),
        until: int | None = None,
    ) -> Walked:
        """What is there, gathered and released; limits are in elements.

        Several tensors that are gathered together are copied out of one flat buffer when the first of them is used;
        the buffer stays until the last one is. Where hpZ is `copying`, those with a second share come apart. What is
        released after an event is `decided` by an earlier walk: the coordinator keeps what its first walk decided.
        Tensors that are `held` lie there before the walk, which the coordinator does not count (reset_step); it ends
        before the event `until`.
        """
        order, numels, extents, steps = self.order, self.numels, self.extents, self.steps
        bounds, leaving, wholes, later, inner = self.bounds, self.leaving, self.wholes, self.later, self.inner
        uses, waits = len(order), {use for late in later.values() for use in late}
        there = set(held)
        coming: dict[int, _Gather] = {}
        copied: set[int] | None = set(self.frozen) if copying else None
        plain = copied is None and not self.split
        marked = [-1] * (max(order, default=0) + 1)  # of each tensor the event of the last use that was fetched ahead
        far = [near >= max_reuse for near in self.nears]  # whether a use lets go of its tensor
        at_once = far  # and does so when its own event is over
        if waits:
            at_once = [lets and use not in waits for use, lets in enumerate(far)]
        singles: dict[int, frozenset[int]] = {}  # a tensor -> it alone
        moved = {*later, *leaving}  # events after which something goes that they do not use
        starts: list[int] = []
        peaks: list[int] = []
        rests: list[int] = []
        released: list[frozenset[int]] = []
        gathers: list[tuple[int, Sequence[int], bool]] = []
        live = ahead = buffers = done = begin = freed = 0  # live: elements
        here = sum(dict(zip(order, extents, strict=True))[one] for one in there) if there else 0  # what they take
        for step, end in enumerate(bounds[1:] if until is None else bounds[1 : until + 1]):
            most = here + buffers
            if begin == end and (live >= max_live or ahead >= uses) and step not in moved:  # all stays
                starts.append(most)
                peaks.append(most)
                rests.append(most)
                released.append(_NOTHING)
                freed = 0
                continue
            if begin < end:
                if begin + 1 == end and plain:  # most events by far
                    place = order[begin]
                    if place not in there:
                        there.add(place)
                        gathers.append((step, [begin], False))
                        live += numels[begin]
                        here += extents[begin]
                        most = here + buffers
                elif missing := [use for use in range(begin, end) if order[use] not in there]:
                    live += sum([numels[use] for use in missing])
                    here += self._fetched(step, missing, there, coming, alone, gathers, copied)
                    most = here + buffers
                for use in range(begin, end) if coming else ():
                    gather = coming.pop(order[use], None)
                    if gather is None:
                        continue
                    if not gather.copied:
                        gather.copied = True
                        buffers += gather.extent
                        most = max(most, here + buffers)
                    gather.waiting -= 1
                    if not gather.waiting:
                        if step in wholes:
                            done += gather.extent
                        else:
                            buffers -= gather.extent
                if done:
                    buffers, done = buffers - done, 0
                if end > ahead:
                    ahead = end
            starts.append(most)
            if ahead < uses and prefetch:
                room = max_live - live - (freed if step in inner else 0)
                if room > 0:
                    room = min(room, prefetch)
                    begun: list[int] = []
                    fetching = 0
                    while ahead < uses and fetching < room:
                        other = order[ahead]
                        marked[other] = steps[ahead]
                        if other not in there:
                            there.add(other)
                            begun.append(ahead)
                            fetching += numels[ahead]
                        ahead += 1
                    if begun:
                        live += fetching
                        here += self._fetched(step, begun, there, coming, alone, gathers, copied)
            peaks.append(here + buffers)
            gone, freed = _NOTHING, 0
            if begin < end or step in later:
                late_ones = later.get(step, ())
                if decided is not None:
                    going = decided[step]
                    left = [use for use in (*range(begin, end), *late_ones) if order[use] in going] if going else []
                elif begin + 1 == end and not late_ones:
                    left = [begin] if at_once[begin] and marked[order[begin]] <= step else []
                else:
                    left = [use for use in range(begin, end) if at_once[use] and marked[order[use]] <= step]
                    left += [use for use in late_ones if far[use] and marked[order[use]] <= step]
                if len(left) == 1:
                    place = order[left[0]]
                    gone = singles.get(place) or singles.setdefault(place, frozenset((place,)))
                    freed = numels[left[0]]
                    live -= freed
                    here -= extents[left[0]]
                elif left:
                    gone = frozenset([order[use] for use in left])
                    freed = sum([numels[use] for use in left])
                    live -= freed
                    here -= sum([extents[use] for use in left])
            if step in leaving:
                late = [held for held in leaving[step] if held.place in there and held.place not in gone]
                live -= sum(held.numel for held in late)
                here -= sum(held.numel for held in late)  # frozen ones, so no adapters
                gone |= {held.place for held in late}
            if gone:
                there -= gone
                if copied is not None:
                    copied |= gone
            released.append(gone)
            rests.append(here + buffers)
            begin = end
        return Walked(starts, peaks, rests, released, gathers)

    def _fetched(
        self,
        step: int,
        uses: Sequence[int],
        there: set[int],
        coming: dict[int, _Gather],
        alone: bool,
        gathers: list[tuple[int, Sequence[int], bool]],
        copied: set[int] | None,
    ) -> int:
        """Gather the tensors of uses together, or those apart that hpZ has copied or AutoTP split: what they take."""
        own = self.split if copied is None else copied
        if not own and len(uses) == 1:  # most calls by far
            gathers.append((step, uses, False))
            there.add(self.order[uses[0]])
            return self.extents[uses[0]]
        if own:
            mine, others = [use for use in uses if self.order[use] in own], []
            if len(mine) < len(uses):
                others = [use for use in uses if self.order[use] not in own]
            taken = 0
            for part in (mine, others):
                if part:
                    gathers.append((step, part, part is mine and own is copied))
                    taken += self._gather(part, there, coming, alone)
            return taken
        gathers.append((step, uses, False))
        return self._gather(uses, there, coming, alone)

    def _gather(self, uses: Sequence[int], there: set[int], coming: dict[int, _Gather], alone: bool) -> int:
        extent = sum([self.extents[use] for use in uses])
        tensors = [self.order[use] for use in uses]
        there.update(tensors)
        if len(tensors) > 1 and not alone:  # a single tensor is gathered into its own place
            together = _Gather(extent, len(tensors))
            coming.update(dict.fromkeys(tensors, together))
        return extent


def _over(events: Sequence[ModuleEvent], step: int) -> int:
    """The event at which the layer around an adapter's first matrix is over: of its last module."""
    event = events[step]
    last = event.module.name.removesuffix(_READ) + (".base_layer" if event.way == BACKWARD else ".lora_B.default")
    for later in range(step + 1, min(step + 4, len(events))):
        if events[later].module.name == last and events[later].block == event.block:
            return later
    return step


def _within(event: ModuleEvent, other: ModuleEvent) -> bool:
    return event.block == other.block and event.module.name.startswith(f"{other.module.name}.")
