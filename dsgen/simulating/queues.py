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
        origin: The queue whose work ends last of that: its own, or what it waits for.
        worked: When its own last work ends.
        intervals: Its own work, in the order of time.
    """

    __slots__ = ("end", "intervals", "name", "origin", "worked")

    def __init__(self, name: str) -> None:
        self.name, self.end, self.worked = name, 0.0, 0.0
        self.origin: Queue = self
        self.intervals: list[Interval] = []

    def run(self, begin: float, seconds: float, sort: str, name: str, size_bytes: int = 0) -> None:
        """Run something from a moment on that is not before `end`."""
        self.intervals.append(Interval(self.name, sort, name, begin, seconds, size_bytes))
        self.end = self.worked = begin + seconds
        self.origin = self

    def wait(self, until: float, origin: Queue) -> None:
        """Begin later work no earlier, because of another queue."""
        if until > self.end:
            self.end, self.origin = until, origin

    def shift(self, seconds: float) -> None:
        """Let time pass that is like the time before."""
        self.end += seconds
        self.worked += seconds

    def during(self, begin: float, end: float) -> Iterator[tuple[str, float, float]]:
        """What it ran between two moments, the latest first: sort, begin and end."""
        for one in reversed(self.intervals):
            if one.begin + one.seconds <= begin:
                return
            first, last = max(begin, one.begin), min(end, one.begin + one.seconds)
            if last > first:
                yield one.sort, first, last
