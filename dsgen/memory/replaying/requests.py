"""What a rank asks of its GPU, in order, played into torch's allocator as it is asked."""

from __future__ import annotations

from collections.abc import Iterable

from dsgen.allocators import Allocator, Expandable
from dsgen.allocators.caching import SMALL_REQUEST

__all__ = ["Handle", "Requests"]

Handle = int  # of something that was asked for; 0 where it was too small to be followed


class Requests:
    """A rank's requests.

    Those up to `SMALL_REQUEST` are left out: the allocator serves them from segments of 2 MiB of their own, which are
    less than 1 % of what is reserved in all but a few of the scenarios of benchmarks/reserved.json.
    """

    def __init__(self, expandable: bool, room: int | None = None) -> None:
        self._allocator = Expandable(room) if expandable else Allocator(room)
        self._allocate, self._free = self._allocator.allocate, self._allocator.free
        self._handle = 0

    @property
    def reserved(self) -> int:
        """The most bytes that were reserved by now."""
        return self._allocator.reserved_peak

    @property
    def out_of_memory(self) -> bool:
        """Whether something was asked for that had no place, when all that was free had been given back."""
        return self._allocator.out_of_memory

    def take(self, size: int, stream: int = 0) -> Handle:
        """Ask for some bytes on a stream."""
        if size <= SMALL_REQUEST:
            return 0
        self._handle = handle = self._handle + 1
        self._allocate(handle, size, stream)
        return handle

    def give_one(self, handle: Handle) -> None:
        """Give back what was asked for."""
        if handle:
            self._free(handle)

    def give(self, *handles: Handle) -> None:
        """Give several back, in order."""
        for handle in handles:
            if handle:
                self._free(handle)

    def borrow(self, size: int, stream: int = 0) -> None:
        """Ask for bytes and give them back."""
        self.give(self.take(size, stream))

    def set_aside(self, size: int) -> None:
        """Ask for what stays, and is in no number that is told."""
        if size:
            self._allocator.set_aside(size)

    def together(self, sizes: Iterable[int]) -> list[Handle]:
        """Ask for several, one behind the other."""
        return [self.take(size) for size in sizes]

    def empty_cache(self) -> None:
        """Give what is free back to the GPU."""
        self._allocator.empty_cache()
