"""What Muon gathers to step whole matrices: at stage 3, and with the optimizer on the CPU.

Followed from the code of DeepSpeed 0.19.8: runtime/zero/stage_1_and_2.py (_apply_muon_updates_cpu_offload) and
runtime/zero/stage3.py (_apply_muon_to_accumulated_grads, _muon_update_sub_group, _partitioned_buffers_all_gather).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dsgen.memory.cuts import cut
from dsgen.memory.muon import ADAM, orthogonal
from dsgen.memory.shares import FP32, NORM, sub_groups
from dsgen.memory.trained import Trained

__all__ = ["offloaded", "states_at_stage_3"]

_GATHERED = 2**26  # bytes gathered at once at stages 1 and 2 (_muon_allgather_max_buffer_bytes)
_KEPT = 2**28  # bytes of buffers that are kept to gather through (_muon_allgather_max_cached_bytes)


class _Kept(dict[tuple[int, int], int]):
    """The buffers that gathering keeps, the oldest first, by what they are for; in bytes."""

    def taking(self, wanted: tuple[int, int, int]) -> int:
        """Bytes of all, and of one more."""
        key, size = wanted[:2], wanted[2]
        if key in self:
            self[key] = self.pop(key)
            return sum(self.values())
        if size > _KEPT:
            return sum(self.values()) + size
        while self and sum(self.values()) + size > _KEPT:
            del self[next(iter(self))]
        self[key] = size
        return sum(self.values())


def offloaded(tensors: Trained, ranks: int) -> tuple[int, int, int]:
    """As `states`, of what is on the CPU; what is gathered through stays on the GPU, and whole matrices come to it.

    Source: stage_1_and_2.py, _apply_muon_updates_cpu_offload and _muon_all_gather_partitions.

    Args:
        tensors, ranks: As for `states`.
    """
    cuts = cut(tensors, ranks)
    if not tensors.split:
        return ADAM * cuts[0].share, 0, 0
    first, more, most = _Kept(), 0, 0
    for several in (1, 2):  # gradients alone in the first step, with momenta from then on
        through = _Kept(first) if several > 1 else first
        for batch in _batches(tensors):
            more = through.taking(_through(tensors, ranks, cuts[0].share, batch, several)) if ranks > 1 else 0
            numels = tensors.numels[batch.start : batch.stop]
            whole = 2 * FP32 * sum(numels)
            before = 0
            for index, numel in zip(batch, numels, strict=True):
                end = tensors.ends[index]
                own = max(0, min(end, cuts[0].share) - end + numel)
                made = before + orthogonal(tensors.shapes[index], FP32, "fp32")
                most = max(most, more + whole + max(made, FP32 * numel + NORM * own))
                before = FP32 * numel
    return ADAM * sum(one.share for one in cuts[1:]) + FP32 * cuts[0].share, sum(first.values()), most


def _batches(tensors: Trained) -> Iterator[range]:
    """Matrices that come to the GPU together."""
    first = filled = 0
    for index, numel in enumerate(tensors.numels[: tensors.split]):
        if filled and filled + numel > _GATHERED // (2 * FP32):
            yield range(first, index)
            first, filled = index, 0
        filled += numel
    yield range(first, tensors.split)


def _through(tensors: Trained, ranks: int, share: int, batch: range, several: int) -> tuple[int, int, int]:
    """Elements that are gathered at once, of how many kinds, and bytes of the buffers for it."""
    there: Counter[int] = Counter()
    for index in batch:
        low, high = tensors.ends[index] - tensors.numels[index], tensors.ends[index]
        while low < high:
            end = min((low // share + 1) * share, high)
            there[low // share] += end - low
            low = end
    chunk = min(max(there.values()), max(1, _GATHERED // ((ranks + 1) * several * FP32)))
    return chunk, several, chunk * several * (ranks + 1) * FP32


def states_at_stage_3(
    tensors: Trained, ranks: int, own: int, bucket: int, sub_group: int, size: int, precision: str, on_gpu: bool
) -> tuple[int, int, int, int]:
    """Bytes of the states of this rank's shares at stage 3, of momenta among them, of buffers, and of the updates.

    The momenta are there from init on, and the buffers, which it gathers through, from the first step on.

    Args:
        tensors: The trained tensors, in the order of the model.
        ranks: Ranks that a tensor is cut among.
        own: Elements of this rank's shares of all tensors.
        bucket: Elements that are gathered at once, or one matrix.
        sub_group: sub_group_size, in elements.
        size: Bytes of a gradient.
        precision: bf16, fp16 or fp32.
        on_gpu: Whether the states are on the GPU; else all matrices of a sub-group are gathered at once.
    """
    momentum = most = before = 0
    adam = ADAM * own
    kept, mine = _Kept(), []
    for group in sub_groups(tensors, ranks, sub_group):
        share = _share(tensors, group, ranks)
        if not tensors.shapes[group[0]]:
            continue
        adam -= ADAM * share
        momentum += size * share
        mine.append(group)
    if not on_gpu:
        return adam + momentum, 0, *_gathered_at_once(tensors, ranks, mine, size, precision)
    for chunk in (chunk for group in mine for chunk in _chunks(tensors, group, bucket)):
        clones = size * _share(tensors, chunk, ranks)
        full = clones * ranks if ranks > 1 else 0  # else it is the share itself
        through = clones * (ranks + 1)
        for more in (full, 2 * full + clones) if full else ():  # the gradients, and then their momenta
            most = max(most, before + more + kept.taking((clones, 1, through)))
        there = before + 2 * full + clones + sum(kept.values())
        most = max(most, there + _rounds(tensors, chunk, ranks, size, precision))
        before = full
    return adam + momentum, momentum, sum(kept.values()), most


def _share(tensors: Trained, group: Sequence[int], ranks: int) -> int:
    return sum(-(-tensors.numels[index] // ranks) for index in group)


def _gathered_at_once(
    tensors: Trained, ranks: int, groups: Sequence[Sequence[int]], size: int, precision: str
) -> tuple[int, int]:
    """Bytes that are kept to gather through from the first step on, and the most that updates take.

    The states are on the CPU, so that shares come from there. What a sub-group has gathered stays until the next has.
    """
    first, later, most, before = _Kept(), _Kept(), 0, 0
    for group in groups:  # there are no momenta yet to gather
        share = size * _share(tensors, group, ranks)
        first.taking((share, 1, share * (ranks + 1)))
    later.update(first)
    for group in groups:
        elements = _share(tensors, group, ranks)
        there = (FP32 + size) * elements
        if ranks > 1:
            full = 2 * size * elements * ranks
            most = max(most, before + there + full + later.taking((elements, 2, 2 * size * elements * (ranks + 1))))
            there, before = there + full, full
        there, update = there + sum(later.values()), 0
        for index in group:
            most = max(most, there + update + orthogonal(tensors.shapes[index], size, precision))
            update = size * tensors.numels[index]
    return sum(first.values()) if ranks > 1 else 0, most


def _chunks(tensors: Trained, group: Sequence[int], bucket: int) -> Iterator[Sequence[int]]:
    first = filled = 0
    for place, index in enumerate(group):
        if place > first and filled + tensors.numels[index] > bucket:
            yield group[first:place]
            first, filled = place, 0
        filled += tensors.numels[index]
    yield group[first:]


def _rounds(tensors: Trained, chunk: Sequence[int], ranks: int, size: int, precision: str) -> int:
    """Bytes at most while each rank makes one update a round and all of them are gathered, in equal pieces.

    What a round has gathered, gradients and momenta, stays until the next has its own.
    """
    most = before = piece = update = 0  # in bytes: of both lists, of one of their pieces, and of this rank's update
    for first in range(0, len(chunk), ranks):
        here = chunk[first : first + ranks]
        shapes = [tensors.shapes[index] for index in here]
        most = max(most, 2 * before + 2 * piece + update + orthogonal(shapes[0], size, precision))
        update = size * tensors.numels[here[0]]
        if len(here) == ranks and len(set(shapes)) == 1:  # gathered where they are
            before = piece
            continue
        wide = size * max(tensors.numels[index] for index in here)
        both = update + 2 * wide
        most = max(most, both + before + before + ranks * wide, both + piece + before + 2 * ranks * wide)
        before, piece = ranks * wide, wide
    return most
