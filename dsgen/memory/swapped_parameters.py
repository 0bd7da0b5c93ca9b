"""Parameters on NVMe in DeepSpeed's swap buffers, walked over one step: whether a fetch asks for a buffer that it has.

Followed from DeepSpeed 0.19.8, runtime/zero/partitioned_param_coordinator.py (fetch_sub_module,
__prefetch_nvme_param_partitions) and runtime/swap_tensor/partitioned_param_swapper.py (swap_in), from the second pass
on, when the order of use is known. While a module runs, shares are read ahead along the order of use, until twice the
elements that are being gathered have been passed or every buffer is taken. A tensor of the last block is twice in that
order, in forward and soon after it in backward, and the list of what to read is not looked through: where both uses
are reached, the tensor is read twice, and the second time stops with "param N already assigned swap buffer id M".
"""

import functools
from collections.abc import Collection
from typing import NamedTuple

from dsgen.memory.coordinator import TensorUses
from dsgen.memory.events import Step, events
from dsgen.memory.gathered import uses_of
from dsgen.shapes.profiles import Model
from dsgen.strategies.buffers import Buffers

__all__ = ["Swapping", "ending", "kept_on_drive", "walk"]

LEAST_BYTES = 1 << 20  # of a rank's share: below, a tensor is not swapped (runtime/swap_tensor/utils.py, MIN_AIO_BYTES)


class Swapping(NamedTuple):
    """What decides how parameters are swapped.

    Attributes:
        world: Ranks that share a tensor.
        wire: Bytes of an element.
        block_bytes: aio.block_size; a smaller share is not swapped.
        buffers: offload_param.buffer_count.
        in_cpu: offload_param.max_in_cpu, elements of a rank.
        sub_group: sub_group_size, elements of a rank.
    """

    world: int
    wire: int
    block_bytes: int
    buffers: int
    in_cpu: int
    sub_group: int


def kept_on_drive(sizes: dict[int, int], swapping: Swapping) -> frozenset[int]:
    """The tensors that stay on the drive: large enough, and in no sub-group that has room in `max_in_cpu`.

    Args:
        sizes: Place of each trained tensor in the model -> its elements.
        swapping: What decides.
    """
    least = max(LEAST_BYTES, swapping.block_bytes)
    shares = {place: -(-numel // swapping.world) for place, numel in sorted(sizes.items())}
    room = min(swapping.in_cpu, sum(shares.values()))
    kept: set[int] = set()
    group: list[int] = []
    offset = 0
    last = max(shares, default=None)
    for place in shares:
        group.append(place)
        size = sum(shares[one] for one in group)
        if size >= swapping.sub_group or place == last:
            if offset + size > room:
                kept |= {one for one in group if shares[one] * swapping.wire >= least}
            offset, group = offset + size, []
    return frozenset(kept)


@functools.lru_cache(maxsize=64)
def ending(model: Model, checkpointing: bool, chunked: bool, buffers: Buffers, swapping: Swapping) -> bool | None:
    """How a step of full training stops: a tensor is read twice (True), no buffer is left (False), or not (None)."""
    step = Step(model, "full", 0, (), 1, checkpointing=checkpointing, chunked=chunked)
    sizes = {held.place: held.numel for event in events(step) for held in event.module.tensors}
    drive = kept_on_drive(sizes, swapping)
    limits = buffers.prefetch, buffers.max_live, buffers.max_reuse
    stopped = walk(uses_of(step, buffers.persistence), limits, drive, swapping.buffers)
    return None if stopped is None else stopped[1] >= 0


def walk(
    uses: TensorUses, limits: tuple[int, int, int], drive: Collection[int], buffers: int
) -> tuple[int, int] | None:
    """The event and the tensor that is read twice, or -1 where no buffer is left for it; None where nothing stops.

    Args:
        uses: Of one step.
        limits: Elements: fetched ahead, most live, most until reuse.
        drive: The tensors that are on the drive.
        buffers: How many are there.
    """
    prefetch, max_live, max_reuse = limits
    order, numels, bounds, nears = uses.order, uses.numels, uses.bounds, uses.nears
    there: set[int] = set()
    gathering: dict[int, int] = {}  # tensor -> elements
    read: set[int] = set()  # which have a buffer
    marked: dict[int, int] = {}
    live = ahead = begin = 0
    for step, end in enumerate(bounds[1:]):
        for use in range(begin, end):
            place = order[use]
            if place not in there:
                there.add(place)
                live += numels[use]
                if place in drive:
                    read.add(place)
                    if len(read) > buffers:
                        return step, -1
            gathering.pop(place, None)
        ahead = max(ahead, end)
        room, fetching = min(max_live - live, prefetch), 0
        while ahead < len(order) and fetching < room:
            place = order[ahead]
            if place in drive and place not in read:
                break
            marked[place] = uses.steps[ahead]
            if place not in there:
                there.add(place)
                gathering[place] = numels[ahead]
                fetching += numels[ahead]
            ahead += 1
        live += fetching
        if prefetch:
            most, passed, wanted = 2 * sum(gathering.values()), 0, set[int]()
            for use in range(ahead, len(order)):
                if passed > most or len(wanted) >= buffers - len(read):
                    break
                place = order[use]
                if place in drive and place not in read:
                    if place in wanted:
                        return step, place
                    wanted.add(place)
                passed += numels[use]
            read |= wanted
        for use in range(begin, end):
            place = order[use]
            if nears[use] >= max_reuse and marked.get(place, -1) <= step and place in there:
                there.discard(place)
                read.discard(place)
                live -= numels[use]
        begin = end
    return None
