"""What each moment of a replayed step waited for: the parts of its time, and the critical path that decides its end."""

import bisect
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dsgen.simulating.clocks import Clocks, HostRecord
from dsgen.simulating.queues import Task
from dsgen.simulating.timelines import ALIKE, CONTENTION, HOST_BOUND, KERNELS, EnteredPhase, Interval, PathStretch

__all__ = ["History", "Turns", "add", "intervals"]

_ROUNDING = 1e-9  # share by which sums of seconds differ that are the same


class Turns(NamedTuple):
    """Passes that are added up.

    Attributes:
        phase: Number of the phase that stands for them.
        like: Numbers of the phases of the pass that they are like: from, and before.
        times: How many there are.
    """

    phase: int
    like: tuple[int, int]
    times: int


class _PathPiece(NamedTuple):
    """A piece of time and what went on in it, because of which the next piece could not begin earlier."""

    begin: float
    end: float
    what: Task | HostRecord | None  # None: the host dispatched


class History:
    """All that happened, once everything is done.

    Attributes:
        end: Seconds of the step.
    """

    def __init__(self, clocks: Clocks, phases: Sequence[EnteredPhase], turns: Sequence[Turns]) -> None:
        self._clocks, self._phases, self._turns = clocks, phases, turns
        self._begins = [record.begin for record in clocks.records]
        self._queued = [phase.begin for phase in phases]
        ended = [queue.last for queue in clocks.queues() if queue.last is not None]
        last = max(ended, key=_end, default=None)
        if last is not None and _end(last) > clocks.host:
            self._last: Task | None = last
            self.end = _end(last)
        else:
            self._last, self.end = None, clocks.host

    def parts(self) -> list[dict[str, float]]:
        """Phase -> sort -> seconds: what the compute stream runs, and where it runs nothing, what that waited for."""
        parts: list[dict[str, float]] = [{} for _ in self._phases] or [{}]
        floor, phase = 0.0, 0
        for task in self._clocks.compute.tasks:
            if not task.work:
                continue
            begin, phase = _begin(task), task.phase
            self._fill(parts[phase], self._back(task.cause, begin, floor))
            floor = _end(task)
            if task.name != ALIKE:
                self._fill(parts[phase], (_PathPiece(begin, floor, task),))
        self._fill(parts[-1 if self._phases else 0], self._back(self._last, self.end, floor))
        for turns in self._turns:
            for one in parts[turns.like[0] : turns.like[1]]:
                for sort, seconds in one.items():
                    add(parts[turns.phase], sort, turns.times * seconds)
        return parts

    def path(self) -> tuple[dict[str, float], tuple[PathStretch, ...]]:
        """The critical path: sort -> seconds, which add up to the step, and its stretches in the order of time."""
        parts: dict[str, float] = {}
        stretches: list[PathStretch] = []
        until, more = 0.0, 0.0  # down to where the path stands for passes that are added up too, and for how many
        left = {turns.phase: turns for turns in self._turns}
        for span in self._by_phase(self._back(self._last, self.end, 0.0)):
            repeated = 0.0
            turns = left.get(self._phase(span)) if _name(span) == ALIKE else None
            if turns is not None:
                more = turns.times
                until = span.begin - (span.end - span.begin) / more
            else:
                for sort, seconds in _sorts(span):
                    add(parts, sort, seconds)
                if span.end > until and more:
                    shared = (span.end - max(span.begin, until)) / (span.end - span.begin)
                    repeated = more * shared
                    for sort, seconds in _sorts(span):
                        add(parts, sort, repeated * seconds)
            self._stretch(stretches, span, repeated * (span.end - span.begin))
        return parts, tuple(reversed(stretches))

    def _back(self, task: Task | None, at: float, floor: float) -> Iterator[_PathPiece]:
        """What led to a moment, the latest first: what a task did that ended then, what it waited for before, ...

        Where a task waited for nothing but the host, what the host did until it had queued it.
        """
        while at > floor:
            if task is None:
                place = bisect.bisect_left(self._begins, at) - 1
                record = self._clocks.records[place] if place >= 0 else None
                since = max(floor, record.end if record is not None else 0.0)
                if since < at:
                    yield _PathPiece(since, at, None)
                    at = since
                elif record is not None and record.task is None:
                    yield _PathPiece(max(floor, record.begin), at, record)
                    at = record.begin
                elif record is not None:
                    task = record.task
            else:
                begin = _begin(task)
                if begin < at:
                    yield _PathPiece(max(floor, begin), at, task)
                at, task = min(at, begin), task.cause

    def _by_phase(self, spans: Iterator[_PathPiece]) -> Iterator[_PathPiece]:
        """Spans, of which the host's dispatch is cut where the host enters a phase: it may go through many."""
        for span in spans:
            end = span.end
            if span.what is None:
                first, last = (bisect.bisect_right(self._queued, at) for at in (span.begin, end))
                for begin in reversed(self._queued[first:last]):
                    if begin < end:
                        yield _PathPiece(begin, end, None)
                        end = begin
            if end > span.begin:
                yield span._replace(end=end)

    def _fill(self, parts: dict[str, float], spans: Iterator[_PathPiece] | tuple[_PathPiece, ...]) -> None:
        for span in spans:
            for sort, seconds in _sorts(span):
                add(parts, sort, seconds)

    def _phase(self, span: _PathPiece) -> int:
        """Number of the phase that a span belongs to; the host's dispatch to the one it was in."""
        if span.what is not None:
            return span.what.phase
        return max(bisect.bisect_right(self._queued, span.begin) - 1, 0)

    def _stretch(self, stretches: list[PathStretch], span: _PathPiece, repeated: float) -> None:
        """Join a span to the last stretch, which is later, or begin one; it stands for so many seconds more."""
        phase, number, _ = self._phases[self._phase(span)] if self._phases else EnteredPhase("", 0, 0.0)
        what, seconds = _kind(span), span.end - span.begin
        module = "" if span.what is None else span.what.module
        last = stretches[-1] if stretches else None
        if last is not None and (last.what, last.phase, last.micro_batch) == (what, phase, number):
            stretches[-1] = last._replace(
                begin=span.begin,
                seconds=last.seconds + seconds,
                first=module or last.first,
                last=last.last or module,
                repeated_seconds=last.repeated_seconds + repeated,
            )
        else:
            stretches.append(PathStretch(what, phase, number, span.begin, seconds, module, module, repeated))


def add(sums: dict[str, float], sort: str, seconds: float) -> None:
    """Add seconds to those of a sort."""
    sums[sort] = sums.get(sort, 0.0) + seconds


def intervals(clocks: Clocks) -> tuple[Interval, ...]:
    """The work of every queue, the host's cores last; what is added up is left out."""
    places: dict[Task, int] = {}
    shown: list[Task] = []
    for queue in clocks.queues():
        for task in queue.tasks:
            if task.sort and task.name != ALIKE:
                places[task] = len(shown)
                shown.append(task)
    drawn = [
        Interval(task.queue.name, task.sort, task.name, _begin(task), _end(task) - _begin(task), task.bytes, task.work,
                 task.module, _place(task, places), task.sizes)
        for task in shown
    ]  # fmt: skip
    drawn += [
        Interval(
            "host", one.sort, one.name, one.begin, one.end - one.begin, one.bytes, one.end - one.begin, one.module, -1
        )
        for one in clocks.records
        if one.task is None and one.name != ALIKE
    ]
    return tuple(drawn)


def _place(task: Task, places: dict[Task, int]) -> int:
    """Where the work of another queue is that a task waited for last."""
    cause = task.cause
    while cause is not None and not cause.sort:  # a moment is when something else ended
        cause = cause.cause
    return -1 if cause is None or cause.queue is task.queue else places.get(cause, -1)


def _begin(task: Task) -> float:
    return 0.0 if task.begin is None else task.begin


def _end(task: Task) -> float:
    return 0.0 if task.end is None else task.end


def _name(span: _PathPiece) -> str:
    return "" if span.what is None else span.what.name


def _kind(span: _PathPiece) -> str:
    if _name(span) == ALIKE:
        return ALIKE
    if isinstance(span.what, Task) and span.what.shared:
        return KERNELS
    return HOST_BOUND if span.what is None else span.what.sort


def _sorts(span: _PathPiece) -> Iterator[tuple[str, float]]:
    """Seconds of a span by sort: of a kernel that others slowed, its share of what that cost besides."""
    what, seconds = span.what, span.end - span.begin
    if isinstance(what, Task) and what.shared:
        whole = _end(what) - _begin(what)
        if whole - what.work <= _ROUNDING * whole:
            yield what.sort, seconds
        else:
            yield what.sort, seconds * what.work / whole
            yield CONTENTION, seconds * (1 - what.work / whole)
    else:
        yield HOST_BOUND if what is None else what.sort, seconds
