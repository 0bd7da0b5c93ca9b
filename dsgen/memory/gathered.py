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

from dsgen.buffers import Buffers
from dsgen.memory.activations import AGAIN, BACKWARD, FORWARD
from dsgen.memory.coordinator import Walk
from dsgen.memory.events import Event, events
from dsgen.memory.modules import AUTOGRAD, BITSANDBYTES, modules
from dsgen.memory.trained import BEFORE
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
    steps = events(model, method, lora_rank, lora_targets, tp, checkpointing, chunked)
    parts = dict(modules(model, method, lora_rank, lora_targets, tp).parts)
    walk = Walk.over(steps, persistence, max_reuse)
    starts, peaks, rests, gone = walk.run(prefetch, max_live, alone)
    kept, left, packed = _kept(steps, gone, checkpointing)
    places: dict[tuple[int, int, int], int] = {}
    uses: dict[int, int] = {}
    place = now = 0
    here = BEFORE, FORWARD
    rows = zip(steps, starts, peaks, rests, kept, left, strict=True)
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


def _kept(events: Sequence[Event], gone: Sequence[set[int]], checkpointing: bool) -> tuple[list[int], list[int], int]:
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
