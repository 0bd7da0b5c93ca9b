"""Whether torch's allocator has a place for every tensor of a strategy that surely fits by its sum."""

from __future__ import annotations

import attrs

from dsgen.memory.estimates import MemoryEstimate, Verdict
from dsgen.memory.reserved import Reserving

__all__ = ["placed"]

# Of 224 scenarios that were replayed with torch's default settings the one that needs the largest card needs 1.46 times
# its tensors (docs/reserved.md); what has more room than this is not replayed.
MOST_HOLES = 1.50


def placed(memory: MemoryEstimate) -> MemoryEstimate:
    """A strategy's memory, uncertain on a GPU where its requests, replayed on a card of that size, run out of memory.

    A search bounds the allocator's holes by a share of the tensors (dsgen.memory.estimates), which a few scenarios
    exceed with segments that do not grow. A replay takes up to a second, and is asked of an answer alone. Where the
    order of requests is not known, what is expected to be reserved decides.
    """
    gpu = memory.gpu
    holds = gpu.holds
    if gpu.verdict is not Verdict.FITS or not isinstance(holds, Reserving) or holds.expandable:
        return memory
    room = gpu.limit_bytes - gpu.overhead_bytes - gpu.overhead_more_bytes
    if MOST_HOLES * gpu.peak_bytes <= room or (holds.finds_room(room) if holds.replayed() else holds().bytes <= room):
        return memory
    needed = holds().bytes + gpu.overhead_bytes + gpu.overhead_more_bytes  # more than there is, else all had a place
    return attrs.evolve(memory, gpu=gpu._replace(high_bytes=max(needed, gpu.limit_bytes + 1)))
