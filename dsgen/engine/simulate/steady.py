"""A run's requests of the GPU through the allocator, its last step over and over until nothing more is reserved.

A run is simulated for a few steps; training goes on for thousands, each like the last one. What the last step leaves
alive takes the place of what it freed of the step before, size for size and stream for stream, in the order of birth;
where that cannot be, the run is replayed as it was, once.
"""

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dsgen.allocators.caching import Allocator, Reserved, replay
from dsgen.engine.simulate.ledger import GPU, Ledger

__all__ = ["StepRequests", "Unserved", "first_unserved", "least_card", "played"]

Event = tuple[int, int, int]  # as `allocator.replay` takes them
STEPS = 12  # more steps than any of the committed scenarios needs to be steady (benchmarks/reserved.json: 1)
_BEHIND = "save"  # the first phase that may come behind the steps
QUIET = 2  # steps in a row that must reserve nothing new
PAGE = 2 << 20  # bytes; what is reserved is a multiple of it
LOOKS = 6  # halvings of what lies between the tensors and what is reserved, which is at most as much again


class RepeatedPasses(NamedTuple):
    """Passes of accumulation that only repeat the one before.

    Attributes:
        begin: Requests before the first of them.
        length: Requests of one.
        births: Storages of one, in RAM too: what is added to a handle of one for that of the next.
        many: How many there are.
    """

    begin: int
    length: int
    births: int
    many: int


class Unserved(NamedTuple):
    """The first request that a GPU cannot serve.

    Attributes:
        handle: Of the storage that is asked for.
        later: It is asked for in a step after the simulated ones, in which the last of them is played again.
    """

    handle: int
    later: bool


class StepRequests:
    """The requests of a run: up to its last step, in that step, and what of it stands for what in the step before.

    What comes behind the steps, a save and an engine that resumes, is none of them.
    """

    __slots__ = ("before", "heirs", "last", "repeats", "turns", "turns_before")

    def __init__(self, ledger: Ledger, workspace_bytes: int = 0) -> None:
        events = list(ledger.replay(GPU, workspace_bytes))
        marks = [*itertools.takewhile(lambda mark: mark[0] != _BEHIND, ledger.marks)]
        last = max((step for _, step, _, _ in marks), default=0)
        begin = max((until for _, step, _, until in marks if step < last), default=0)

        def before(event: int) -> int:
            """Requests of the GPU before an event of the ledger."""
            host = sum(1 for code in ledger.events[:event] if code and ledger.places[abs(code) - 1] != GPU)
            aside = sum(1 for one in ledger.products.values() if one < event) if workspace_bytes else 0
            return event - host + aside

        cut = before(begin)
        self.before: Sequence[Event] = events[:cut]
        self.last: Sequence[Event] = events[cut : before(marks[-1][3]) if len(marks) < len(ledger.marks) else None]
        turns = [
            (first, RepeatedPasses(before(first), before(first + length) - before(first), births, count))
            for first, length, births, count in ledger.turns
        ]
        self.turns_before = [one for first, one in turns if first < begin]
        self.turns = [one._replace(begin=one.begin - cut) for first, one in turns if first >= begin]
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


class _Player:
    """Serves requests by an allocator, for which each time that a step is played makes other handles.

    Where a pass leaves the allocator as an earlier one did, those behind it that do the same go round and round: whole
    rounds are left out.
    """

    def __init__(self, allocator: Allocator, stop: bool) -> None:
        self._allocator, self._stop = allocator, stop
        self._own: dict[int, int] = {}  # handle of the step that is played -> the allocator's
        self._older: dict[int, int] = {}  # of the one before
        self._made = 0

    def play(self, events: Sequence[Event], turns: Sequence[RepeatedPasses], again: bool = False) -> None:
        """Serve the requests of a step; in one that is played `again` nothing is set aside once more."""
        at = 0
        for turn in turns:
            self._serve(events[at : turn.begin], again)
            at, end = turn.begin, turn.begin + turn.many * turn.length
            left = [self._left(events[max(0, at - turn.length) : at])]
            while at < end and not (self._stop and self._allocator.out_of_memory):
                part = events[at : at + turn.length]
                self._serve(part, again)
                at += turn.length
                left.append(self._left(part))
                if left[-1] in left[:-1] and left[-1] is not None:
                    period = left[-2::-1].index(left[-1]) + 1
                    turns_left = (end - at) // turn.length // period * period
                    self._leave_out(part, turns_left * turn.births)
                    at += turns_left * turn.length
                    left = [None]
        self._serve(events[at:], again)

    def pass_on(self, heirs: Mapping[int, int] | None = None) -> None:
        """Begin the next step, in which what this one left has the handles of those before; None: its own."""
        own = self._own
        self._older = own if heirs is None else {old: own[heir] for old, heir in heirs.items()}
        self._own = {}

    def _serve(self, events: Sequence[Event], again: bool) -> None:
        allocator, own, older, made = self._allocator, self._own, self._older, self._made
        for handle, size, stream in events:
            if handle > 0:
                made += 1
                own[handle] = made
                allocator.allocate(made, size, stream)
            elif handle < 0:
                allocator.free(own.get(-handle) or older.get(-handle, 0))
            elif not size:
                allocator.empty_cache()
            elif not again:
                allocator.set_aside(size, stream)
        self._made = made

    def _left(self, part: Sequence[Event]) -> object:
        """What the requests of a pass left: the allocator's state, and where those lie that it will free later."""
        state = self._allocator.state()
        own, address = self._own, self._allocator.address
        return state and (state, [address(own.get(handle, 0)) for handle, _, _ in part if handle > 0])

    def _leave_out(self, part: Sequence[Event], further: int) -> None:
        """Give what a pass left alive the handles of the last one that does the same."""
        own = self._own
        own.update([(handle + further, own[handle]) for handle, _, _ in part if handle > 0])


class _Finder(_Player):
    """Serves requests one by one until memory runs out."""

    first: Unserved | None = None
    _handle = 0

    def _serve(self, events: Sequence[Event], again: bool) -> None:
        for event in events:
            if self.first is not None:
                return
            self._handle = event[0] if event[0] > 0 else self._handle
            super()._serve((event,), again)
            if self._allocator.out_of_memory:
                self.first = Unserved(self._handle, again)


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
    grew = _through(run, allocator, _Player(allocator, stop), most, stop)
    return replay((), allocator), grew


def first_unserved(run: StepRequests, allocator: Allocator) -> Unserved | None:
    """The request with which a run first lacks memory, through a fresh allocator; None where it goes through."""
    finder = _Finder(allocator, stop=True)
    _through(run, allocator, finder, STEPS, stop=True)
    return finder.first


def _through(run: StepRequests, allocator: Allocator, player: _Player, most: int, stop: bool) -> int:
    """Play a run, and its last step again; how many steps after the simulated ones reserved more."""
    player.play(run.before, run.turns_before)
    player.pass_on()
    quiet, grew = 0, 0
    for step in range(most + 1 if run.repeats else 1):
        if stop and allocator.out_of_memory:
            break
        reserved = allocator.reserved_peak
        player.play(run.last, run.turns, again=step > 0)
        if stop and allocator.out_of_memory:
            break  # amid the step
        player.pass_on(run.heirs)
        if step:
            quiet = quiet + 1 if allocator.reserved_peak == reserved else 0
            grew = grew if quiet else step
            if quiet == QUIET:
                break
    return grew


def least_card(
    run: StepRequests,
    make: Callable[[int | None], Allocator],
    known: dict[int, bool],
    unbounded: Reserved | None = None,
) -> int:
    """The least memory that a GPU must give torch for a run to go through, by halving, a little too high at most.

    Args:
        run: The run.
        make: An allocator of a GPU of some bytes.
        known: Bytes of a GPU -> whether memory ran out there, as far as it was tried; gets what is tried.
        unbounded: What the run holds where no GPU bounds it, if that is known.
    """
    result = unbounded or played(run, make(None))[0]
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
