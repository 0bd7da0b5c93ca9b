"""Queues of work that run beside the host, and what they did between two moments."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.simulating.timelines import Interval

__all__ = ["Queue"]


class Queue:
    """A stream, the collectives, the drives or the host's cores: one thing after another.

    Attributes:
        name: As in `Interval.queue`.
        end: When it has done all that it has, and all that it waits for has happened.
        worked: When its own last work ends.
        intervals: Its own work, in the order of time.
    """

    __slots__ = ("_history", "_origin", "end", "intervals", "name", "worked")

    def __init__(self, name: str) -> None:
        self.name, self.end, self.worked = name, 0.0, 0.0
        self.intervals: list[Interval] = []
        self._origin: Queue = self
        self._history: list[
            tuple[float, float, str | Queue]
        ] = []  # from, until: what it worked on, or for whom it waited

    @property
    def origin(self) -> Queue:
        """The queue whose work ends last of all that this one has and waits for."""
        return self._origin

    def run(self, begin: float, seconds: float, sort: str, name: str, size_bytes: int = 0) -> None:
        """Run something from a moment on that is not before `end`."""
        self._settle()
        self.intervals.append(Interval(self.name, sort, name, begin, seconds, size_bytes))
        self._history.append((begin, begin + seconds, sort))
        self.end = self.worked = begin + seconds
        self._origin = self

    def wait(self, until: float, origin: Queue) -> None:
        """Begin later work no earlier, because of another queue."""
        if until > self.end:
            self._settle()
            self.end, self._origin = until, origin

    def idle(self, begin: float, end: float, origin: Queue) -> None:
        """Note that it waits for another queue, and has no end that anything else waits for: the host."""
        self._history.append((begin, end, origin))

    def shift(self, seconds: float) -> None:
        """Let time pass that is like the time before."""
        self._settle()
        self.end += seconds
        self.worked += seconds

    def during(self, begin: float, end: float) -> Iterator[tuple[float, float, str | Queue]]:
        """What it did between two moments, the latest first: from when to when it worked on what or waited for whom."""
        self._settle()
        for since, until, what in reversed(self._history):
            if until <= begin:
                return
            first, last = max(begin, since), min(end, until)
            if last > first:
                yield first, last, what

    def _settle(self) -> None:
        """Write down what it waits for by now."""
        since = self._history[-1][1] if self._history else 0.0
        since = max(since, self.worked)
        if self.end > since and self._origin is not self:
            self._history.append((since, self.end, self._origin))
