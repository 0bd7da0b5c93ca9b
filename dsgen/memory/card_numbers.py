"""What a person reads of one GPU while a strategy trains on it, and which of these numbers its memory bounds."""

from typing import NamedTuple

from dsgen.memory.estimates import Place
from dsgen.memory.reserved import ReservedBytes

__all__ = ["Card", "card"]


class Card(NamedTuple):
    """The numbers of one GPU, in bytes; what is reserved and shown is never more than the GPU has.

    Attributes:
        allocated: torch's `max_memory_allocated`: the tensors, and cuBLAS's workspaces.
        least_allocated: The least that it can be.
        reserved: torch's `max_memory_reserved`.
        shown: What nvidia-smi shows.
        outside: What lies outside torch: the context, NCCL's buffers, other processes.
        room: What the GPU leaves to torch: what is allocated, and the holes between, must stay below it.
    """

    allocated: int
    least_allocated: int
    reserved: ReservedBytes
    shown: ReservedBytes
    outside: int
    room: int

    @property
    def runs(self) -> bool:
        """Whether what is expected to be allocated has room; else nobody will read these numbers."""
        return self.allocated <= self.room

    @property
    def held_free(self) -> int:
        """What torch holds and no tensor has: given back, but for the holes, before an allocation fails."""
        return self.reserved.bytes - self.allocated


def card(gpu: Place) -> Card:
    """The numbers of a GPU; as if it were as large as it must be where the limit is not known (0) or too small."""
    outside = gpu.overhead_bytes - gpu.workspace_bytes
    room = gpu.limit_bytes - outside if gpu.limit_bytes else gpu.high_bytes
    more = gpu.allocated_bytes - gpu.peak_bytes
    most = max(room, gpu.allocated_bytes)
    held = ReservedBytes(*(min(one, most) for one in gpu.reserved))
    return Card(gpu.allocated_bytes, gpu.low_bytes + more, held, gpu.shown, outside, room)
