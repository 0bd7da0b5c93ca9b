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
from dsgen.memory.numbers import partitioned, quantized
from dsgen.memory.trained import AFTER, BEFORE
from dsgen.parameters import adapters, stretches
from dsgen.profiles import Model

__all__ = ["Gathered", "gathered"]


# Model types whose blocks multiply by their weights without torch's linear function: `x @ weight.T` in FalconLinear,
# `addmm` in Conv1D. Autograd keeps what was gathered for them until their backward. (So it does for experts.)
DIRECT = frozenset({"falcon", "gpt2"})
# Model types whose blocks end with something that autograd saves and no module holds (dropout as a function). The
# frozen weights that a checkpointed block gathers when it runs forward again are then the block's own, and stay until
# its backward has ended; else they are those of the module that ends it, and leave with that (fetch_sub_module and
# release_sub_module, ds_recompute_parameters).
DROPPING = frozenset({"opt"})
NORMED = frozenset({"gemma2", "gemma3_text"})  # a norm ends their blocks


class Gathered(NamedTuple):
    """Elements that are gathered at once, persistent ones not among them.

    Attributes:
        forward: The most while each block runs forward, with the flat buffer that a gather's tensors are copied from.
        turn: When the loss is made.
        backward: The most while each block runs backward, its second forward included, by block.
        embedding: When backward has come to what is before the blocks.
        packed: When backward has ended: bitsandbytes holds on to the 4-bit weights that its layers got in forward.
        uses: Index of a tensor among all of the model's -> elements while its backward runs.
    """

    forward: tuple[int, ...]
    turn: int
    backward: tuple[int, ...]
    embedding: int
    packed: int
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
    found = _tensors(model, method, lora_rank, lora_targets, tp, persistence)
    order, staying, dropping, turn = _order(model, found, method != "full", checkpointing)
    same = [0 if model.tied_embeddings and place < 0 else tensor for tensor, place in enumerate(found.places)]
    sizes, uses_of = [found.numels[tensor] for tensor in order], [same[tensor] for tensor in order]
    peaks, starts, gone = _walk(sizes, uses_of, staying, dropping, prefetch, max_live, max_reuse)
    kept = _kept(found, order, gone, turn, checkpointing)
    peaks = [peak + more for peak, more in zip(peaks, kept, strict=True)]
    starts = [peak + more for peak, more in zip(starts, kept, strict=True)]
    embedding = 0
    forward, backward = [0] * model.layers, [0] * model.layers
    uses: dict[int, int] = {}
    for step, tensor in enumerate(order):
        block = found.blocks[tensor]
        if 0 <= block < model.layers:
            if step < turn:
                forward[block] = max(forward[block], starts[step])
            else:
                backward[block] = max(backward[block], peaks[step])
        elif block == BEFORE and step >= turn:
            embedding = max(embedding, peaks[step])
        if step >= turn:
            uses[found.places[tensor]] = peaks[step]  # of two uses of a checkpointed block the later is its backward
    ends = peaks[turn - 1 : turn + 1]  # from the last tensor's use in forward to its use in backward
    packed = sum(numel for numel, kind in zip(found.numels, found.kinds, strict=True) if kind == _PACKED)
    turned = max(ends, default=0) or max(forward, default=0)
    return Gathered(tuple(forward), turned, tuple(backward), max(embedding, packed), packed, uses)


_PLAIN, _DIRECT, _PACKED = range(3)  # who holds on to a tensor that has been released: nobody, autograd, bitsandbytes


class _Tensors(NamedTuple):
    """Every tensor that is partitioned, in the order of the model: its elements, its block, its index among all, its
    kind, whether it is frozen, and whether it has an adapter."""

    numels: list[int]
    blocks: list[int]
    places: list[int]
    kinds: list[int]
    frozen: list[bool]
    adapted: list[bool]


def _tensors(
    model: Model, method: str, lora_rank: int, lora_targets: tuple[str, ...], tp: int, persistence: int
) -> _Tensors:
    adapting = adapters(model, lora_rank, lora_targets) if method != "full" else {}
    packed = quantized(model, method)
    found = _Tensors([], [], [], [], [], [])
    number = count = 0
    for stretch in stretches(model):
        row: list[tuple[int, int, bool, bool]] = []
        for item in stretch.parameters:
            linear = item.matrix and item.layer
            direct = item.kind == "expert" or (linear and model.architecture in DIRECT)
            kind = _PACKED if packed and linear else _DIRECT if direct else _PLAIN
            row.append((partitioned(model, item, tp, packed), kind, method != "full", item.name in adapting))
            row += [(numel, _PLAIN, False, True) for numel in adapting.get(item.name, ())]
        large = [place for place, one in enumerate(row) if one[0] > persistence]
        for _ in range(stretch.repeats):
            found.places.extend(count + place for place in large)
            for column, values in zip((found.numels, *found[3:]), zip(*row, strict=True), strict=True):
                column.extend(values[place] for place in large)
            found.blocks.extend([number if stretch.blocks else BEFORE if number == 0 else AFTER] * len(large))
            number += stretch.blocks
            count += len(row)
    if model.tied_embeddings and found.numels and found.blocks[0] == BEFORE:
        # The head is the first tensor again: it stands for itself at its second use.
        for column, value in zip(found, (found.numels[0], AFTER, -1, _PLAIN, method != "full", False), strict=True):
            column.append(value)
    return found


class _Order(NamedTuple):
    """The tensors in order of use in one step.

    Attributes:
        order: Their indices.
        staying: Uses after which one stays.
        dropping: Use -> the tensors that leave after it.
        turn: Where backward begins.
    """

    order: list[int]
    staying: set[int]
    dropping: dict[int, list[int]]
    turn: int


def _order(model: Model, found: _Tensors, frozen: bool, checkpointing: bool) -> _Order:
    """A checkpointed block's backward begins with the module that made its output, which stays while the block runs
    forward again."""
    members: dict[int, list[int]] = {}
    for tensor, block in enumerate(found.blocks):
        members.setdefault(block, []).append(tensor)
    order = list(range(len(found.blocks)))
    made = _Order(order, set(), {}, len(order))
    order += members.get(AFTER, [])[::-1]
    for block in range(model.layers - 1, -1, -1):
        inside = members.get(block, [])
        if not checkpointing or not inside:
            order += inside[::-1]
            continue
        # The last matrix; what is named behind it in the model are norms.
        last = max(inside, key=lambda tensor: (found.numels[tensor] > model.hidden_size, tensor))
        if frozen:
            _again(model, found, made, inside, last)
            continue
        made.staying.add(len(order))
        order += [last, *(tensor for tensor in inside if tensor != last), last]
        order += [tensor for tensor in inside[::-1] if tensor != last]
    if checkpointing or not frozen:  # else nothing asks for a gradient of the embedding
        order += members.get(BEFORE, [])[::-1]
    return made


def _again(model: Model, found: _Tensors, made: _Order, inside: list[int], last: int) -> None:
    """A checkpointed block with frozen weights, which stay from its second forward until their owner's backward."""
    order = made.order
    held = [tensor for tensor in inside if found.frozen[tensor]]
    late = model.architecture in DROPPING and not model.post_norm
    # The owner is the last matrix, or its adapter; a small adapter, or a norm, is always there.
    owned = not (late or model.post_norm or model.architecture in NORMED)
    owned = owned and not (found.frozen[last] and found.adapted[last])
    if owned:
        made.staying.add(len(order))
        order.append(last)
    for tensor in inside:
        if found.frozen[tensor] or (owned and tensor == last):
            made.staying.add(len(order))
        order.append(tensor)
    leaving = len(order) - 1
    for tensor in inside[::-1]:
        if late and found.frozen[tensor]:
            made.staying.add(len(order))
        if owned and tensor == last:
            leaving = len(order)
        order.append(tensor)
    made.dropping[len(order) - 1 if late else leaving] = held


@attrs.define
class _Gather:
    """One all-gather on its way: its elements, how many tensors wait for it, and whether it was copied out."""

    elements: int
    waiting: int
    copied: bool = False


def _walk(
    numels: list[int],
    order: list[int],
    staying: set[int],
    dropping: dict[int, list[int]],
    prefetch: int,
    max_live: int,
    max_reuse: int,
) -> tuple[list[int], list[int], list[list[int]]]:
    """Elements that are there while each use runs, at its start, and which tensors are released after it.

    Several tensors that are gathered together are copied out of one flat buffer when the first of them is used; the
    buffer stays until the last one is.
    """
    steps = len(order)
    later = [steps] * steps  # the next use of the same tensor
    seen: dict[int, int] = {}
    for step in range(steps - 1, -1, -1):
        later[step] = seen.get(order[step], steps)
        seen[order[step]] = step
    size_of = dict(zip(order, numels, strict=True))
    passed = [0] * (steps + 1)  # elements used before each step
    for step in range(steps):
        passed[step + 1] = passed[step] + numels[step]
    there: set[int] = set()
    coming: dict[int, _Gather] = {}
    marked: dict[int, int] = {}
    during, starting = [], []
    released: list[list[int]] = []
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
        gone = [] if kept or step in staying else [tensor]
        gone += [other for other in dropping.get(step, ()) if other in there and other not in gone]
        released.append(gone)
        for other in gone:
            there.discard(other)
            live -= size_of[other]
    return during, starting, released


def _kept(found: _Tensors, order: list[int], gone: list[list[int]], turn: int, checkpointing: bool) -> list[int]:
    """Elements of released tensors that are still held, while each use runs.

    By autograd from forward, or where blocks run forward again from then on, to the backward of the same tensor; by
    bitsandbytes from forward on.
    """
    during = []
    held = 0
    kept: dict[int, int] = {}
    ends = {tensor: step for step, tensor in enumerate(order)}
    for step, tensor in enumerate(order):
        during.append(held)
        if ends[tensor] == step and found.kinds[tensor] != _PACKED:
            held -= kept.pop(tensor, 0)
        for other in gone[step]:
            packed = found.kinds[other] == _PACKED
            direct = found.kinds[other] == _DIRECT and (step >= turn) == checkpointing and ends[other] > step
            if (packed or direct) and other not in kept:
                kept[other] = found.numels[other]
                held += kept[other]
    return during
