"""How many parameters stage 3 has gathered at once: the coordinator's rules, walked over one step of the model.

Followed from runtime/zero/partitioned_param_coordinator.py of DeepSpeed 0.19.8, from the second step on, when it knows
the order of use. A module that starts gathers its tensors, then fetches ahead: along the order of use, past tensors
that are there already, until `stage3_prefetch_bucket_size` elements are on their way or `stage3_max_live_parameters`
are there. A tensor is released after its use unless fetching ahead has passed a later use of it, or one lies within
`stage3_max_reuse_distance` elements.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import attrs

from dsgen.buffers import Buffers
from dsgen.memory.trained import AFTER, BEFORE, sharded
from dsgen.parameters import adapted, stretches
from dsgen.profiles import Model

__all__ = ["Gathered", "gathered"]


# Model types whose blocks multiply by their weights without torch's linear function: `x @ weight.T` in FalconLinear,
# `addmm` in Conv1D. Autograd keeps what was gathered for them until their backward. (So it does for experts.)
DIRECT = frozenset({"falcon", "gpt2"})


class Gathered(NamedTuple):
    """Elements that are gathered at once, persistent ones not among them.

    Attributes:
        forward: The most while blocks run forward, with the flat buffer that a gather's tensors are copied from.
        turn: When the loss is made.
        backward: The most while each block runs backward, its second forward included, by block.
        embedding: When backward has come to what is before the blocks.
        uses: Index of a tensor among all of the model's -> elements while its backward runs.
    """

    forward: int
    turn: int
    backward: tuple[int, ...]
    embedding: int
    uses: dict[int, int]

    def at(self, block: int) -> int:
        """Elements in backward of a block: BEFORE, AFTER, or counted from 0."""
        if block == AFTER or not self.backward:
            return self.turn
        return self.embedding if block == BEFORE else self.backward[min(block, len(self.backward) - 1)]


def gathered(
    model: Model,
    method: str,
    lora_rank: int,
    lora_targets: tuple[str, ...],
    tp: int,
    buffers: Buffers,
    checkpointing: bool,
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
    """
    limits = (buffers.persistence, buffers.prefetch, buffers.max_live, buffers.max_reuse)
    return _gathered(model, method, lora_rank, lora_targets, tp, *limits, checkpointing)


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
) -> Gathered:
    numels, blocks, places, direct = _tensors(model, method, lora_rank, lora_targets, tp, persistence)
    order, staying, turn = _order(model, blocks, numels, checkpointing)
    same = [0 if model.tied_embeddings and place < 0 else tensor for tensor, place in enumerate(places)]
    uses_of = [same[tensor] for tensor in order]
    peaks, starts, gone = _walk([numels[tensor] for tensor in order], uses_of, staying, prefetch, max_live, max_reuse)
    kept = _kept(order, [bool(direct[tensor]) for tensor in order], gone, turn, checkpointing)
    peaks = [peak + more for peak, more in zip(peaks, kept, strict=True)]
    starts = [peak + more for peak, more in zip(starts, kept, strict=True)]
    forward = embedding = 0
    backward = [0] * model.layers
    uses: dict[int, int] = {}
    for step, tensor in enumerate(order):
        block = blocks[tensor]
        if step < turn:
            forward = max(forward, starts[step] if 0 <= block < model.layers else 0)
        elif 0 <= block < model.layers:
            backward[block] = max(backward[block], peaks[step])
        elif block == BEFORE:
            embedding = max(embedding, peaks[step])
        if step >= turn:
            uses[places[tensor]] = peaks[step]  # of two uses of a checkpointed block the later one is its backward
    ends = peaks[turn - 1 : turn + 1]  # from the last tensor's use in forward to its use in backward
    return Gathered(forward, max(ends, default=0) or forward, tuple(backward), embedding, uses)


def _tensors(
    model: Model, method: str, lora_rank: int, lora_targets: tuple[str, ...], tp: int, persistence: int
) -> tuple[list[int], list[int], list[int], list[bool]]:
    """Of every tensor that is partitioned, in the order of the model: elements, block, index, whether it is direct."""
    names = frozenset() if method == "full" else adapted(model, lora_targets)
    numels: list[int] = []
    blocks: list[int] = []
    places: list[int] = []
    direct: list[bool] = []
    number = count = 0
    for stretch in stretches(model):
        row: list[int] = []
        ours: list[bool] = []
        for item in stretch.parameters:
            numel = sharded(model, item, tp)
            row.append(0 if method == "qlora" and item.matrix and item.layer else numel)  # 4-bit weights stay gathered
            ours.append(item.kind == "expert" or (item.matrix and item.layer and model.architecture in DIRECT))
            if item.name in names:
                row += [lora_rank * size for size in item.shape]
                ours += [False, False]
        large = [place for place, numel in enumerate(row) if numel > persistence]
        for _ in range(stretch.repeats):
            numels += [row[place] for place in large]
            places += [count + place for place in large]
            direct += [ours[place] for place in large]
            blocks += [number if stretch.blocks else BEFORE if number == 0 else AFTER] * len(large)
            number += stretch.blocks
            count += len(row)
    if model.tied_embeddings and numels and blocks[0] == BEFORE:
        numels.append(numels[0])  # the head is the first tensor again: it stands for itself at its second use
        blocks.append(AFTER)
        places.append(-1)
        direct.append(False)
    return numels, blocks, places, direct


def _order(model: Model, blocks: list[int], numels: list[int], checkpointing: bool) -> tuple[list[int], set[int], int]:
    """The tensors in order of use in one step, the uses after which one stays, and where backward begins.

    A checkpointed block's backward begins with the module that made its output, which stays while the block runs
    forward again.
    """
    members: dict[int, list[int]] = {}
    for tensor, block in enumerate(blocks):
        members.setdefault(block, []).append(tensor)
    order = list(range(len(blocks)))
    turn = len(order)
    staying: set[int] = set()
    order += members.get(AFTER, [])[::-1]
    for block in range(model.layers - 1, -1, -1):
        inside = members.get(block, [])
        if checkpointing and inside:
            # The last matrix; what is named behind it in the model are norms.
            last = max(inside, key=lambda tensor: (numels[tensor] > model.hidden_size, tensor))
            staying.add(len(order))
            order += [last, *(tensor for tensor in inside if tensor != last), last]
            order += [tensor for tensor in inside[::-1] if tensor != last]
        else:
            order += inside[::-1]
    return order + members.get(BEFORE, [])[::-1], staying, turn


@attrs.define
class _Gather:
    """One all-gather on its way: its elements, how many tensors wait for it, and whether it was copied out."""

    elements: int
    waiting: int
    copied: bool = False


def _walk(
    numels: list[int], order: list[int], staying: set[int], prefetch: int, max_live: int, max_reuse: int
) -> tuple[list[int], list[int], list[int]]:
    """Elements that are there while each use runs, at its start, and those that are released after it.

    Several tensors that are gathered together are copied out of one flat buffer when the first of them is used; the
    buffer stays until the last one is.
    """
    steps = len(order)
    later = [steps] * steps  # the next use of the same tensor
    seen: dict[int, int] = {}
    for step in range(steps - 1, -1, -1):
        later[step] = seen.get(order[step], steps)
        seen[order[step]] = step
    passed = [0] * (steps + 1)  # elements used before each step
    for step in range(steps):
        passed[step + 1] = passed[step] + numels[step]
    there: set[int] = set()
    coming: dict[int, _Gather] = {}
    marked: dict[int, int] = {}
    during, starting, released = [], [], []
    live = ahead = buffers = 0
    for step, tensor in enumerate(order):
        if tensor not in there:
            there.add(tensor)
            live += numels[step]
        gather = coming.pop(tensor, None)
        if gather is not None and not gather.copied:
            gather.copied = True
            buffers += gather.elements
        starting.append(live + buffers)
        if gather is not None:
            gather.waiting -= 1
            if not gather.waiting:
                buffers -= gather.elements
        ahead = max(ahead, step + 1)
        if prefetch:
            room = min(max_live - live, prefetch)
            begun: list[int] = []
            found = 0
            while ahead < steps and found < room:
                other = order[ahead]
                marked[other] = ahead
                if other not in there:
                    there.add(other)
                    begun.append(other)
                    found += numels[ahead]
                ahead += 1
            live += found
            if len(begun) > 1:  # a single tensor is gathered into its own place
                together = _Gather(found, len(begun))
                coming.update((other, together) for other in begun)
        during.append(live + buffers)
        following = later[step]
        kept = marked.get(tensor, -1) > step or (following < steps and passed[following] - passed[step + 1] < max_reuse)
        gone = not kept and step not in staying
        released.append(numels[step] if gone else 0)
        if gone:
            there.discard(tensor)
            live -= numels[step]
    return during, starting, released


def _kept(order: list[int], direct: list[bool], gone: list[int], turn: int, checkpointing: bool) -> list[int]:
    """Elements that autograd keeps of released tensors, while each use runs: from forward, or where blocks run forward
    again from then on, to the backward of the same tensor."""
    found = []
    held = 0
    kept: dict[int, int] = {}
    ends = {tensor: step for step, tensor in enumerate(order)}
    for step, tensor in enumerate(order):
        found.append(held)
        if not direct[step]:
            continue
        if ends[tensor] == step:
            held -= kept.pop(tensor, 0)
        elif gone[step] and (step >= turn) == checkpointing and tensor not in kept:
            kept[tensor] = gone[step]
            held += gone[step]
    return found
