"""How many parameters stage 3 has gathered at once: the coordinator's rules, walked over one step of the model.

Followed from runtime/zero/partitioned_param_coordinator.py of DeepSpeed 0.19.8, from the second step on, when it knows
the order of use. A module that starts gathers its tensors, then fetches ahead: along the order of use, past tensors
that are there already, until `stage3_prefetch_bucket_size` elements are on their way or `stage3_max_live_parameters`
are there. A module without tensors fetches ahead too. A tensor is released after its use unless fetching ahead has
passed a later use of it, or one lies within `stage3_max_reuse_distance` elements.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

from dsgen.memory.activations import AGAIN, APART, AT, BACKWARD, FETCHED, FORWARD, START, Position
from dsgen.memory.coordinator import TensorUses, Walked
from dsgen.memory.events import ModuleEvent, Step, events, first_asked, graphless, lingering, narrow, unasked
from dsgen.memory.modules import AUTOGRAD, BITSANDBYTES, NOBODY
from dsgen.memory.trained import AFTER, BEFORE

__all__ = ["Gathered", "Where", "around", "gathered", "row_places", "uses_of", "walked", "walked_later"]

# A block (BEFORE, AFTER, or counted from 0), the way through it, and the place in it: matrices before, and the stage.
Where = tuple[int, int, int, int]
# Places of an event: where a block is entered, its matrix fetched, and used; those of a second product; the last one.
Row = tuple[Where | None, Where | None, Where | None, tuple[Where, ...], Where]
EMBEDDING = Position(0, AT)  # what lies before the blocks has this one place


class Gathered(NamedTuple):
    """What is gathered at once, in elements of a weight; persistent tensors are not among it.

    Attributes:
        places: Block, way and place as a moment of activations tells it -> the most there.
        uses: Index of a tensor among all of the model's -> elements when its gradient has been made; of adapters none.
        packed: When backward has ended: bitsandbytes holds on to the 4-bit weights that its layers got in forward.
        first_step: What is there in the first step when a module of several tensors is gathered: the order of use is
            not known yet, so all its tensors come together, and are copied out of one flat buffer.
        highest: What `higher` has found by now.
        most: Block -> the most there after its forward pass, once `when` has been asked for it.
        copies: Position, or index of a tensor -> elements of hpZ's second shares that are among those there.
    """

    places: dict[Where, int]
    uses: dict[int, int]
    packed: int
    first_step: dict[Where, int]
    highest: dict[tuple[Where, int], tuple[tuple[int, int], ...]]
    most: dict[int, int]
    copies: dict[Where | int, int]

    def at(self, block: int, way: int, place: Position = START) -> int:
        """Elements at a place; before the blocks, at the embedding."""
        return self.places.get((block, way, *(EMBEDDING if block == BEFORE else place)), 0)

    def higher(
        self, block: int, way: int, place: Position, count: int, every: bool = False
    ) -> tuple[tuple[int, int], ...]:
        """Of the `count` blocks before one, those where more is gathered at a place than in all behind them, or every.

        Returns:
            (how many blocks before, elements).
        """
        if every:
            return tuple((behind, self.places.get((block - behind, way, *place), 0)) for behind in range(1, count + 1))
        key = (block, way, *place), count
        if key not in self.highest:
            places, most, higher = self.places, self.at(block, way, place), []
            for behind in range(1, count + 1):
                more = places.get((block - behind, way, *place), 0)
                if more > most:
                    most = more
                    higher.append((behind, more))
            self.highest[key] = tuple(higher)
        return self.highest[key]

    def when(self, block: int, index: int) -> int:
        """Elements in backward of a block when the gradient of a tensor has been made, or the most there for -1."""
        if index in self.uses:
            return self.uses[index]
        if block == BEFORE:
            return self.at(block, BACKWARD)
        if not self.most:
            self.most.update((other, 0) for other, *_ in self.places)
            for (other, way, *_), elements in self.places.items():
                if way != FORWARD and elements > self.most[other]:
                    self.most[other] = elements
        return self.most.get(block, 0)

    def copied(self, block: int, way: int, place: Position, tensor: int | None) -> int:
        """Elements of second shares at a place, or in backward of a block when a gradient has been made; see `when`."""
        if tensor is None:
            return self.copies.get((block, way, *(EMBEDDING if block == BEFORE else place)), 0)
        if tensor in self.copies or block == BEFORE:
            return self.copies.get(tensor if tensor in self.copies else (block, BACKWARD, *EMBEDDING), 0)
        later = [one for one in self.places if one[0] == block and one[1] != FORWARD]
        return self.copies[max(later, key=self.places.__getitem__)] if later else 0


@functools.lru_cache(maxsize=1024)
def gathered(
    step: Step, limits: tuple[int, int, int, int], alone: bool = False, anew: bool = False, group: int = 0
) -> Gathered:
    """What is gathered in one step.

    Args:
        step: The step.
        limits: The coordinator's, in elements: persistence, prefetch, most live, most until reuse.
        alone: There is one rank: it copies each tensor from the node's RAM by itself.
        anew: The pass is the first that knows its order of use, and follows another in the same step: the tensors
            that are never partitioned later are gathered with the others, and count among them.
        group: Ranks that share the second shares that hpZ makes in this pass: each trained tensor has its own from its
            first release on, and they count among what is there; 0 where it makes none.
    """
    persistence = limits[0]
    steps, full = events(step), step.method == "full"
    starts, peaks, rests, gone, _ = walked(step, limits, alone, anew, group > 0)
    kept, partly, left, packed = _kept(steps, gone, step)
    copies: dict[Where | int, int] = {}
    grown = _grown(steps, gone, step, group) if group else ()
    if grown:
        starts, peaks = ([one + more for one, more in zip(rows, grown, strict=False)] for rows in (starts, peaks))
        rests = [one + more for one, more in zip(rests, grown[1:], strict=True)]
    places: dict[Where, int] = {}
    uses: dict[int, int] = {}
    now = 0
    rows = enumerate(zip(around(step), steps, starts, peaks, rests, kept, partly, left, strict=True))
    for number, (row, event, start, peak, rest, before, half, after) in rows:
        entered, fetched, used, later, behind = row
        if entered:
            places[entered] = now
        now = rest + after
        most = row_places(places, row, event, start + before, peak + before, peak + half, now)
        if grown:
            there = [one for one in (entered, fetched, used, *later) if one]
            there += [held.place for held in event.module.tensors if event.way != FORWARD]
            copies.update(dict.fromkeys(there, grown[number]))
            if most >= places.get(behind, -1):
                copies[behind] = grown[number + (most == now)]
        if most > places.get(behind, -1):
            places[behind] = most
        if full and event.way != FORWARD and not event.ends:
            module = event.module
            for index, one in enumerate(module.tensors):  # of two uses of a block the later one is its backward
                second = module.second and index >= module.second and not module.whole
                uses[one.place] = peak + (half if second else after)
    first = {} if alone or anew else _first_step(step, persistence)
    return Gathered(places, uses, packed, first, {}, {}, copies)


def row_places(
    places: dict[Where, int], row: Row, event: ModuleEvent, start: int, peak: int, second: int, rest: int
) -> int:
    """Put down what is there at the places of an event, and give back the most behind the last of them.

    Args:
        places: Gets them.
        row: Those of the event, as in `around`.
        event: It.
        start, peak, second, rest: What is there when it begins, at most, while its second product runs, and after it.
    """
    _, fetched, used, later, behind = row
    most = max(start, peak)
    if event.block == AFTER and event.way == FORWARD and not event.module.product:
        most = places[behind] = peak  # the loss comes when the norm has left its flat buffer
    if used and fetched:
        places[fetched], places[used] = start, peak
        most = rest
        for other in later:
            places[other] = second
    return most


def _grown(steps: Sequence[ModuleEvent], gone: Sequence[frozenset[int]], step: Step, group: int) -> list[int]:
    """Elements of the second shares that are there when each event begins, and behind the last."""
    extents = {
        held.place: held.extent(step.wide) for event in steps for held in event.module.tensors if not held.frozen
    }
    elements = [0]
    for released in gone:
        elements.append(elements[-1] + sum(-(-extents.pop(place, 0) // group) for place in released))
    return elements


@functools.lru_cache(maxsize=256)
def _first_step(step: Step, persistence: int) -> dict[Where, int]:
    """What is there when each module of several tensors is gathered in the first step, which releases all after use."""
    steps = events(step)
    if not any(event.module.product and len(event.module.tensors) > 1 for event in steps):
        return {}
    parts = [[held for held in event.module.tensors if held.numel > persistence] for event in steps]
    gone = [
        frozenset(() if event.stays else [held.place for held in part])
        for event, part in zip(steps, parts, strict=True)
    ]
    there: dict[Where, int] = {}
    # The module that asks for a block's second forward is there already when its own backward runs.
    asking = {(event.block, event.module.name) for event in steps if event.stays}
    for (_, fetched, *_), event, part, before in zip(
        around(step), steps, parts, _kept(steps, gone, step)[0], strict=True
    ):
        again = event.way == BACKWARD and (event.block, event.module.name) in asking
        if fetched and len(part) > 1 and not again:
            there[fetched] = 2 * sum(held.extent(step.wide) for held in part) + before
    return there


def walked(
    step: Step,
    limits: tuple[int, int, int, int],
    alone: bool = False,
    anew: bool = False,
    copying: bool = False,
    behind: bool = True,
) -> Walked:
    """A step as the coordinator walks it; arguments as for `gathered`, hpZ copies in it or not, and it is `behind`
    another pass of the same optimizer step or not, which may have left something gathered."""
    held: frozenset[int] = lingering(step) if behind else frozenset()
    return _walked(step, limits, alone, anew, copying, held)


@functools.lru_cache(maxsize=256)
def _walked(
    step: Step, limits: tuple[int, int, int, int], alone: bool, anew: bool, copying: bool, held: frozenset[int]
) -> Walked:
    """As `walked`, with what is gathered before: a step that nothing lingers from has one walk, wherever it stands."""
    persistence, prefetch, max_live, max_reuse = limits
    uses = uses_of(step, persistence, anew)
    return uses.run(prefetch, max_live, max_reuse, alone, copying, held=held & frozenset(uses.order))


@functools.lru_cache(maxsize=256)
def walked_later(step: Step, limits: tuple[int, int, int, int], behind: bool = True) -> Walked:
    """A step behind one that gathered anew what persists: the coordinator keeps what that one decided to release.

    `behind` is as for `walked`.

    Source: partitioned_param_coordinator.py, __params_to_release, whose answers are kept (functools.lru_cache).
    """
    persistence, prefetch, max_live, max_reuse = limits
    decided, plain = walked(step, limits, False, True).released, walked(step, limits, False, False, False, behind)
    if decided == plain.released:  # then it walks as if it had decided all by itself
        return plain
    uses = uses_of(step, persistence)
    held = lingering(step) & frozenset(uses.order) if behind else ()
    return uses.run(prefetch, max_live, max_reuse, False, decided=decided, held=held)


@functools.lru_cache(maxsize=256)
def uses_of(step: Step, persistence: int, anew: bool = False) -> TensorUses:
    """The uses of a model's tensors that are gathered; both kinds are asked for, and one is soon made of the other."""
    if step.wide:
        return uses_of(narrow(step), persistence, anew).widened()
    if not anew:
        return uses_of(step, persistence, True).without(persistence)
    return TensorUses.over(events(step), persistence, False, True)


def around(step: Step) -> tuple[Row, ...]:
    """Places of each event: where a block is entered, where its matrix is fetched and used, and where it is then.

    Before the last, those of a second product behind the first.
    """
    return _around(narrow(step))


@functools.lru_cache(maxsize=256)
def _around(step: Step) -> tuple[Row, ...]:
    parts = dict(step.modules.parts)
    last = ".lora_B.default"  # of a layer with an adapter
    layers = {
        block: {one.name.removesuffix(last) for one in part if one.product and one.name.endswith(last)}
        for block, part in parts.items()
    }
    rows: list[Row] = []
    before = asking = 0  # matrices before the place
    here = BEFORE, FORWARD
    for block, module, way, stays, *_ in events(step):
        entered = fetched = used = None
        if (block, way) != here:
            if here == (block, AGAIN):  # forward again ends at the matrix whose module backward has just asked for
                entered = (block, AGAIN, before, AT)
                before = asking
            else:
                asking = before
                ends = sum(one.product + (one.second > 0) for one in parts[block]) + len(layers[block])
                before = ends if way == BACKWARD else 0
            if block != here[0]:
                entered = (block, way, before, APART)
            here = block, way
        later: tuple[Where, ...] = ()
        along = -1 if way == BACKWARD else 1
        behind = way == BACKWARD  # the matrix that comes next lies behind the place
        if module.product and not stays:
            fetched, used = (block, way, before - behind, FETCHED), (block, way, before - behind, AT)
            before += along
            if module.second:
                matrix = before - behind
                later = (block, way, before, APART), (block, way, matrix, FETCHED), (block, way, matrix, AT)
                before += along
        elif behind and module.name in layers[block]:
            before -= 1
        rows.append((entered, fetched, used, later, (block, way, before, APART)))
        if not behind and module.product and module.name.endswith(last):
            before += 1
    return tuple(rows)


def _kept(
    events: Sequence[ModuleEvent], gone: Sequence[frozenset[int]], step: Step
) -> tuple[list[int], list[int], list[int], int]:
    """What somebody keeps of released tensors: while each event runs, while the second part of it does, behind it, and
    at last. The first product of backward is the second of forward, which lets go of its own tensors.

    A block that runs forward again saves a second view of each trained weight; else autograd keeps the gathered place
    of those that are not multiplied by torch's linear function. bitsandbytes keeps its own from forward on.

    With reentrant checkpointing forward makes no graph: a block that runs again saves its weights as they are, and
    bitsandbytes keeps its own until the graph of that is gone.
    """
    checkpointing, wide = step.checkpointing, step.wide
    keeping = checkpointing or any(held.keeper != NOBODY for event in events for held in event.module.tensors)
    if not keeping:
        nothing = [0] * len(events)
        return nothing, nothing, nothing, 0
    during, half, after = [], [], []
    held = packed = 0
    kept: dict[int, int] = {}
    saving = AGAIN if checkpointing else FORWARD
    begin, without = first_asked(step), unasked(step)
    for event, released in zip(events, gone, strict=True):
        during.append(held)
        partly = held
        if kept and event.way == BACKWARD:
            for index, tensor in enumerate(event.over or (() if event.module.late else event.module.tensors)):
                if tensor.keeper != BITSANDBYTES:
                    free = kept.pop(tensor.place, 0)
                    held -= free
                    partly -= free if index >= event.module.second else 0
        half.append(partly)
        if event.closes:
            held -= sum(kept.values())
            kept.clear()
            packed = 0
        if not released or graphless(step, event):
            after.append(held)
            continue
        saved = (*event.module.tensors, *event.over) if event.way == saving else event.leaving
        for tensor in (*event.module.tensors, *event.over, *event.leaving):
            if tensor.place not in released or tensor.place in kept:
                continue
            mine = tensor.keeper == BITSANDBYTES
            direct = tensor.keeper == AUTOGRAD or (checkpointing and not tensor.frozen and not step.reentrant)
            if tensor.frozen and (
                BEFORE < event.block < begin or (event.block == begin and event.module.name in without)
            ):
                continue
            if mine or (direct and tensor in saved):
                kept[tensor.place] = extent = tensor.extent(wide)
                held += extent
                packed += extent if mine else 0
        after.append(held)
    return during, half, after, packed
