"""Every storage of a simulated run: when it was made and freed, where, and what it is for; sums over that record.

No torch here: the record is plain numbers, so that its arithmetic is tested without a simulation.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator
from typing import Any

__all__ = ["GPU", "HOST", "KINDS", "Ledger", "Occupancy", "Phase"]

GPU, HOST = 0, 1  # the two places of a storage

# What a storage is for; the first entries outrank later ones where one storage serves two ends.
KINDS = (
    "weights",
    "fp32 master weights",
    "optimizer states",
    "gradients",
    "communication buckets",
    "offload buffers",
    "gathered parameters",
    "logits and loss",
    "kept logits",
    "activations",
    "inputs",
    "temporaries",
    "other",
)
_CODES = {kind: code for code, kind in enumerate(KINDS)}
_EMPTY_CACHE = 0  # an event that is neither a birth (number + 1) nor a death (-number - 1)


class Occupancy:
    """One place at one moment: bytes by kind, and the number of events before it."""

    __slots__ = ("event", "parts", "total")

    def __init__(self, total: int, parts: tuple[int, ...], event: int) -> None:
        self.total, self.parts, self.event = total, parts, event

    def named(self) -> dict[str, int]:
        """Bytes by kind, kinds without bytes left out; the values add up to `total`."""
        return {KINDS[code]: size for code, size in enumerate(self.parts) if size}


class Phase:
    """A stretch of a run: for each place (GPU, HOST) its peak and what is alive at its end."""

    __slots__ = ("end", "micro_batch", "name", "peak", "step")

    def __init__(
        self, name: str, step: int, micro_batch: int, peak: tuple[Occupancy, ...], end: tuple[Occupancy, ...]
    ) -> None:
        self.name, self.step, self.micro_batch, self.peak, self.end = name, step, micro_batch, peak, end


class Ledger:
    """The record, filled while the run goes on; one number per storage in the order of birth.

    A kind may be given after birth: what a storage was for is often known only when the engine has put it somewhere.
    """

    def __init__(self) -> None:
        self.sizes = array("q")  # bytes
        self.places = array("b")
        self.kinds = array("b")
        self.streams = array("h")  # 0 is the default stream
        self.pinned: set[int] = set()  # numbers of page-locked host storages
        self.notes = array("l")  # index into `descriptions`
        self.descriptions: list[tuple[str, ...]] = []  # (operator, site, dtype, shape), each once
        self.events = array("q")
        self.marks: list[tuple[str, int, int, int]] = []  # (phase that ends, step, micro-batch, events until then)
        # (whether autograd's thread runs it, stream) -> events until the first product of matrices there had its result
        self.products: dict[tuple[bool, int], int] = {}
        # (events before the first, events of one, storages of one, how many) of passes that only repeat the one before
        self.turns: list[tuple[int, int, int, int]] = []
        self._described: dict[tuple[str, ...], int] = {}

    def born(self, size: int, place: int, kind: str, stream: int, description: tuple[str, ...]) -> int:
        """Note a new storage of `size` bytes; its number."""
        number = len(self.sizes)
        note = self._described.get(description)
        if note is None:
            note = self._described[description] = len(self.descriptions)
            self.descriptions.append(description)
        self.sizes.append(size)
        self.places.append(place)
        self.kinds.append(_CODES[kind])
        self.streams.append(stream)
        self.notes.append(note)
        self.events.append(number + 1)
        return number

    def died(self, number: int) -> None:
        """Note that a storage was freed."""
        self.events.append(-number - 1)

    def emptied(self) -> None:
        """Note that the engine told the allocator to give back what it keeps in reserve."""
        self.events.append(_EMPTY_CACHE)

    def multiplied(self, backward: bool, stream: int) -> None:
        """Note that a product of matrices has its result: with the first of a thread and a stream comes a workspace.

        Source: aten/src/ATen/cuda/CublasHandlePool.cpp of PyTorch (getCurrentCUDABlasHandle, setCublasWorkspace): a
        kernel asks for its handle when its result is there; backward of a GPU runs in a thread of its own.
        """
        self.products.setdefault((backward, stream), len(self.events))

    def rename(self, number: int, kind: str) -> None:
        """Say what a storage is for, from its birth on."""
        self.kinds[number] = _CODES[kind]

    def kind(self, number: int) -> str:
        """What a storage is for, as known so far."""
        return KINDS[self.kinds[number]]

    def mark(self, phase: str, step: int, micro_batch: int) -> None:
        """Note the end of a phase; steps and micro-batches count from 1, 0 where there is none."""
        self.marks.append((phase, step, micro_batch, len(self.events)))

    def phases(self) -> list[Phase]:
        """Peak and end of every phase, in order."""
        phases, running, position = [], _Running(self), 0
        for name, step, micro_batch, until in self.marks:
            peaks = tuple(running.copy().peak(place, position, until) for place in (GPU, HOST))
            running.advance(position, until)
            position = until
            ends = tuple(running.at(place, until) for place in (GPU, HOST))
            phases.append(Phase(name, step, micro_batch, peaks, ends))
        return phases

    def alive(self, place: int, event: int) -> list[int]:
        """Numbers of the storages of a place that live after the first `event` events."""
        living: set[int] = set()
        for code in self.events[:event]:
            if code > 0:
                living.add(code - 1)
            elif code < 0:
                living.discard(-code - 1)
        return [number for number in sorted(living) if self.places[number] == place]

    def moves(self, place: int) -> Iterator[tuple[int, bool]]:
        """Number of each storage of a place as it comes (True) and goes, in the order of time."""
        for code in self.events:
            number = abs(code) - 1
            if code != _EMPTY_CACHE and self.places[number] == place:
                yield number, code > 0

    def largest(self, place: int, event: int, count: int) -> list[dict[str, Any]]:
        """The groups of equal storages that hold most bytes at one moment, largest first."""
        groups: dict[tuple[int, int, int], int] = {}
        for number in self.alive(place, event):
            key = (self.kinds[number], self.sizes[number], self.notes[number])
            groups[key] = groups.get(key, 0) + 1
        ordered = sorted(groups.items(), key=lambda item: (-item[0][1] * item[1], item[0]))
        return [
            {
                "kind": KINDS[kind],
                "bytes": size * many,
                "each_bytes": size,
                "count": many,
                **dict(zip(("operator", "site", "dtype", "shape"), self.descriptions[note], strict=True)),
            }
            for (kind, size, note), many in ordered[:count]
        ]

    def timeline(self, place: int, points: int) -> list[dict[str, Any]]:
        """About `points` samples over the whole run: the highest moment of each stretch of events, and its phase."""
        ends = [mark[-1] for mark in self.marks]
        edges = sorted({round(ends[-1] * part / points) for part in range(points + 1)} | set(ends))
        samples, running, phase = [], _Running(self), 0
        for begin, end in itertools.pairwise(edges):
            while ends[phase] <= begin:
                phase += 1
            top = running.copy().peak(place, begin, end)
            running.advance(begin, end)
            samples.append({"mark": phase, "event": top.event, "parts": top.named()})
        return samples

    def replay(self, place: int, workspace_bytes: int = 0) -> Iterator[tuple[int, int, int]]:
        """Events of one place for an allocator, as `dsgen.allocators.caching.replay` takes them.

        Args:
            place: GPU or HOST.
            workspace_bytes: That are set aside with the first product of each thread and stream; 0 for none.
        """
        waiting = sorted((event, stream) for (_, stream), event in self.products.items()) if workspace_bytes else []
        for event, code in enumerate(self.events):
            while waiting and waiting[0][0] <= event:
                yield 0, workspace_bytes, waiting.pop(0)[1]
            if code == _EMPTY_CACHE:
                yield 0, 0, 0
            elif self.places[abs(code) - 1] == place:
                number = abs(code) - 1
                yield (code, self.sizes[number], self.streams[number]) if code > 0 else (code, 0, 0)


class _Running:
    """Bytes by place and kind, moved along the events."""

    def __init__(self, ledger: Ledger, sums: list[list[int]] | None = None) -> None:
        self.ledger = ledger
        self.sums = [[0] * len(KINDS), [0] * len(KINDS)] if sums is None else sums

    def copy(self) -> _Running:
        return _Running(self.ledger, [list(one) for one in self.sums])

    def at(self, place: int, event: int) -> Occupancy:
        return Occupancy(sum(self.sums[place]), tuple(self.sums[place]), event)

    def advance(self, begin: int, end: int) -> None:
        ledger = self.ledger
        for code in ledger.events[begin:end]:
            if code > 0:
                self.sums[ledger.places[code - 1]][ledger.kinds[code - 1]] += ledger.sizes[code - 1]
            elif code < 0:
                number = -code - 1
                self.sums[ledger.places[number]][ledger.kinds[number]] -= ledger.sizes[number]

    def peak(self, place: int, begin: int, end: int) -> Occupancy:
        """The highest moment of one place between two events; the first one where several are equal."""
        ledger, sums = self.ledger, self.sums[place]
        total = sum(sums)
        top, parts, where = total, tuple(sums), begin
        for index in range(begin, end):
            code = ledger.events[index]
            number = abs(code) - 1
            if code == _EMPTY_CACHE or ledger.places[number] != place:
                continue
            size = ledger.sizes[number] if code > 0 else -ledger.sizes[number]
            sums[ledger.kinds[number]] += size
            total += size
            if total > top:
                top, parts, where = total, tuple(sums), index + 1
        return Occupancy(top, parts, where)
