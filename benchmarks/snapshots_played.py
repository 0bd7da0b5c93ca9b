"""A published history of torch's allocator, played into dsgen's: every request must lie where it lay.

A record is what benchmarks/snapshots.py makes of a memory snapshot; benchmarks/data/README.md describes it. The address
of each request is compared, the bytes that are reserved after it, and both totals at the end.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dsgen.allocators import Allocator, Expandable
from dsgen.allocators.allocator_settings import parse

__all__ = ["UNIT", "Place", "differences", "places"]

UNIT = 512  # bytes: every address is a multiple of it, and every request is rounded up to one
MOST_SMALL = 1 << 20  # bytes of a request that is served from a small segment
_NOWHERE = 1 << 60  # an address that no driver gives


class Place(NamedTuple):
    """Bytes at an address."""

    size: int
    address: int


def places(record: Mapping[str, Any]) -> list[Place]:
    """The blocks and segments that a record's numbers stand for."""
    pairs = (text.split("@") for text in record["places"].split())
    return [Place(int(size, 16), int(address, 16) * UNIT) for size, address in pairs]


def differences(record: Mapping[str, Any]) -> list[str]:
    """Where dsgen's allocator does something else than torch's did: a sentence for each; none where all is alike."""
    return list(_Playing(record).differences())


class _Playing:
    def __init__(self, record: Mapping[str, Any]) -> None:
        self._record, self._places = record, places(record)
        settings = parse(record["settings"])
        self._expandable = settings.expandable
        self._allocator = (Expandable if settings.expandable else Allocator)(settings=settings)
        self._used = sorted((self._place(number) for number in record["used"].split()), key=_address)
        self._handles: dict[int, int] = {}  # by recorded address
        self._requests = 0
        # With expandable segments, by whether a pool is small: our address of its segment, less the recorded one.
        self._shifts: dict[bool, int] = {}

    def differences(self) -> Iterator[str]:
        free = [handle for held in self._record["held"].split() for handle in self._laid_out(held)]
        allocator, emptied = self._allocator, False
        for handle in free:
            allocator.free(handle)
        reserved, allocator.next_address = allocator.reserved, _NOWHERE
        for number, event in enumerate(self._record["events"].split()):
            kind = event[0] if event[0] in "-+*" else ""
            size, address = self._place(event.removeprefix(kind))
            if kind == "*":
                reserved -= size
                if not emptied:
                    allocator.empty_cache()
                emptied = True
                continue
            if emptied and allocator.reserved != reserved:
                yield f"event {number}: the emptied cache keeps {allocator.reserved} bytes reserved, not {reserved}"
            emptied = False
            if kind == "+":
                reserved += size
                allocator.next_address = address
            elif kind == "-":
                allocator.free(self._handles.pop(address))
            else:
                lies = self._request(size, address)
                if lies != address:
                    yield f"event {number}: {size} bytes lie at {lies}, not at {address}"
                if allocator.reserved != reserved:
                    yield f"event {number}: {allocator.reserved} bytes are reserved, not {reserved}"
                allocator.next_address = _NOWHERE * (number + 2)
        for name in ("allocated", "reserved"):
            ours, theirs = getattr(allocator, name), self._record[name]
            if ours != theirs:
                yield f"at the end {ours} bytes are {name}, not {theirs}"

    def _place(self, number: str) -> Place:
        return self._places[int(number, 16)]

    def _request(self, size: int, address: int) -> int:
        """Serve a request of the history; where it lies, as the record counts addresses."""
        handle = self._handles[address] = self._taken(size)
        return self._address(handle) - self._shifts.get(size <= MOST_SMALL, 0)

    def _taken(self, size: int) -> int:
        self._requests += 1
        self._allocator.allocate(self._requests, size)
        return self._requests

    def _address(self, handle: int) -> int:
        address = self._allocator.address(handle)
        assert address is not None
        return address

    def _laid_out(self, held: str) -> list[int]:
        """Make a segment as it was before the first event, its blocks one after another; those that are to be freed."""
        segment, small = self._place(held.lstrip("+")), held.startswith("+")
        self._allocator.next_address = segment.address
        if not small and not self._expandable:
            # Whole at first: its size is not always that which its first block asks for.
            self._allocator.free(self._taken(segment.size))
        made = [(self._taken(size), address) for size, address in self._blocks(segment, small)]
        if self._expandable:
            self._shifts[small] = self._address(made[0][0]) - segment.address
        self._handles.update({address: handle for handle, address in made if address is not None})
        return [handle for handle, address in made if address is None]

    def _blocks(self, segment: Place, small: bool) -> Iterator[tuple[int, int | None]]:
        """Size of each block, and its address where it is in use; a free one of a small segment in pieces."""
        at, end = segment.address, segment.address + segment.size
        first = bisect.bisect_left(self._used, at, key=_address)
        last = bisect.bisect_left(self._used, end, key=_address)
        for size, address in (*self._used[first:last], Place(0, end)):
            while at < address:
                piece = min(address - at, MOST_SMALL) if small else address - at
                yield piece, None
                at += piece
            if size:
                yield size, address
                at += size


def _address(place: Place) -> int:
    return place.address
