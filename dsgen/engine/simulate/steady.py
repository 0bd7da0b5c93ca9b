"""A run's requests of the GPU through the allocator, its last step over and over until nothing more is reserved.

A run is simulated for a few steps; training goes on for thousands, each like the last one. What the last step leaves
alive takes the place of what it freed of the step before, size for size and stream for stream, in the order of birth;
where that cannot be, the run is replayed as it was, once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from dsgen.allocators.caching import Allocator, Reserved, replay
from dsgen.engine.simulate.ledger import GPU, Ledger

__all__ = ["StepRequests", "least_card", "played"]

Event = tuple[int, int, int]  # as `allocator.replay` takes them
STEPS = 12  # more steps than any of the committed scenarios needs to be steady (benchmarks/reserved.json: 1)
QUIET = 2  # steps in a row that must reserve nothing new
PAGE = 2 << 20  # bytes; what is reserved is a multiple of it
LOOKS = 6  # halvings of what lies between the tensors and what is reserved, which is at most as much again


class StepRequests:
    """The requests of a run: up to its last step, in that step, and what of it stands for what in the step before."""

    __slots__ = ("before", "heirs", "last", "repeats")

    def __init__(self, ledger: Ledger, workspace_bytes: int = 0) -> None:
        events = list(ledger.replay(GPU, workspace_bytes))
        last = max((step for _, step, _, _ in ledger.marks), default=0)
        begin = max((until for _, step, _, until in ledger.marks if step < last), default=0)
        host = sum(1 for code in ledger.events[:begin] if code and ledger.places[abs(code) - 1] != GPU)
        aside = sum(1 for event in ledger.products.values() if event < begin) if workspace_bytes else 0
        self.before: Sequence[Event] = events[: begin - host + aside]
        self.last: Sequence[Event] = events[begin - host + aside :]
        self.heirs: dict[int, int] = {}  # handle of the step before -> of the last
        self.repeats = last > 0 and self._pair(ledger)

    def _pair(self, ledger: Ledger) -> bool:
        freed = {-code for code, _, _ in self.last if code < 0}
        born = {code for code, _, _ in self.last if code > 0}
        left: dict[tuple[int, int], deque[int]] = {}
        for handle in sorted(born - freed):
            left.setdefault((ledger.sizes[handle - 1], ledger.streams[handle - 1]), deque()).append(handle)
        for handle in sorted(freed - born):
            waiting = left.get((ledger.sizes[handle - 1], ledger.streams[handle - 1]))
            if not waiting:
                return False
            self.heirs[handle] = waiting.popleft()
        return not any(left.values())


def played(run: StepRequests, allocator: Allocator, most: int = STEPS, stop: bool = False) -> tuple[Reserved, int]:
    """A run through a fresh allocator.

    Args:
        run: The run.
        allocator: Of the default mode or of another.
        most: Steps after the simulated ones at most.
        stop: End where memory runs out.

    Returns:
        What was held at most, and the steps after the simulated ones until nothing more was reserved.
    """
    replay(run.before, allocator)
    names: dict[int, int] = {}
    quiet, grew, fresh = 0, 0, 1 << 40  # handles of repeated steps lie above all others
    for step in range(most + 1 if run.repeats else 1):
        if stop and allocator.out_of_memory:
            break
        reserved, own = allocator.reserved_peak, {}
        for handle, size, stream in run.last:
            if handle > 0:
                fresh += 1
                own[handle] = fresh
                allocator.allocate(fresh, size, stream)
            elif handle < 0:
                allocator.free(own.get(-handle) or names.get(-handle, -handle))
            elif size:
                if not step:
                    allocator.set_aside(size, stream)
            else:
                allocator.empty_cache()
        names = {old: own[heir] for old, heir in run.heirs.items()}
        if step:
            quiet = quiet + 1 if allocator.reserved_peak == reserved else 0
            grew = grew if quiet else step
            if quiet == QUIET:
                break
    return replay((), allocator), grew


def least_card(run: StepRequests, make: Callable[[int | None], Allocator], known: dict[int, bool]) -> int:
    """The least memory that a GPU must give torch for a run to go through, by halving, a little too high at most.

    Args:
        run: The run.
        make: An allocator of a GPU of some bytes.
        known: Bytes of a GPU -> whether memory ran out there, as far as it was tried; gets what is tried.
    """
    result, _ = played(run, make(None))
    low, high = result.allocated_peak_bytes // PAGE, result.reserved_peak_bytes // PAGE
    for size, ran_out in known.items():
        low, high = (max(low, size // PAGE), high) if ran_out else (low, min(high, size // PAGE))
    high = max(high, low + 1) if any(known.values()) else high
    for _ in range(LOOKS):
        if high - low <= 1:
            break
        middle = (low + high) // 2
        tried, _ = played(run, make(middle * PAGE), most=1, stop=True)
        known[middle * PAGE] = tried.out_of_memory
        low, high = (middle, high) if tried.out_of_memory else (low, middle)
    return high * PAGE
