"""The clocks of one rank: a host that queues, streams that run, and what the compute stream waits for."""

from __future__ import annotations

from typing import NamedTuple

from dsgen.simulating.queues import Queue
from dsgen.simulating.timelines import HOST_BOUND

__all__ = ["COMPUTE", "Clocks", "Sums"]

COMPUTE = 0  # number of the default stream


class Sums(NamedTuple):
    """What has been added up by a moment.

    Attributes:
        parts: As in `Timeline`.
        busy: As in `Timeline`.
        host_seconds: As in `Timeline`.
    """

    parts: dict[str, float]
    busy: dict[str, float]
    host_seconds: float


class Clocks:
    """Clocks that go on as work is queued. All collectives share one queue, as they share the links of a node.

    Attributes:
        host: Where the host is.
        host_seconds: How long it has worked.
        collectives, drives, cores: Queues besides the streams.
        parts, busy: As in `Timeline`.
    """

    def __init__(self) -> None:
        self.host = self.host_seconds = 0.0
        self.collectives, self.drives, self.cores = Queue("collectives"), Queue("drives"), Queue("host")
        self.compute = Queue("compute")
        self.parts: dict[str, float] = {}
        self.busy: dict[str, float] = {}
        self._streams = {COMPUTE: self.compute}
        self._waits: list[tuple[float, float, Queue]] = []  # of the host: from, until, for whom

    def stream(self, number: int) -> Queue:
        """The queue of a stream."""
        if number not in self._streams:
            self._streams[number] = Queue(f"stream {number}")
        return self._streams[number]

    def queues(self) -> list[Queue]:
        """All of them, the compute stream first."""
        return [*self._streams.values(), self.collectives, self.drives, self.cores]

    def pay(self, seconds: float) -> None:
        """Let the host work, on nothing that has a name."""
        self.host += seconds
        self.host_seconds += seconds

    def kernel(self, stream: Queue, seconds: float, sort: str, name: str, size_bytes: int) -> None:
        """Run a kernel or a copy that the host has just queued."""
        begin = max(self.host, stream.end)
        if stream is self.compute:
            if begin > stream.worked:
                self._idle(stream.worked, stream.end, stream.origin)
                self._idle(max(stream.worked, stream.end), begin, None)
            _add(self.parts, sort, seconds)
        _add(self.busy, sort, seconds)
        stream.run(begin, seconds, sort, name, size_bytes)

    def beside(self, queue: Queue, after: float, seconds: float, name: str, size_bytes: int) -> None:
        """Run a collective, or a file's reading or writing: `name` is its sort too."""
        _add(self.busy, name, seconds)
        queue.run(max(self.host, after, queue.end), seconds, name, name, size_bytes)

    def work(self, seconds: float, sort: str, name: str, size_bytes: int) -> None:
        """Let the host's cores work on tensors, and the host on nothing else."""
        _add(self.busy, sort, seconds)
        self.cores.run(self.host, seconds, sort, name, size_bytes)
        self.pay(seconds)

    def wait(self, until: float, origin: Queue) -> None:
        """Let the host wait for a queue."""
        if until > self.host:
            self._waits.append((self.host, until, origin))
            self.host = until

    def close(self) -> float:
        """End the step: seconds until all is done, the last of it waited for."""
        last = max(self.queues(), key=lambda queue: queue.end)
        end = max(self.host, last.end)
        compute = self.compute
        self._idle(compute.worked, compute.end, compute.origin)
        self._idle(max(compute.worked, compute.end), end, last.origin if last.end >= self.host else None)
        return end

    def sums(self) -> Sums:
        """What has been added up by now."""
        return Sums(dict(self.parts), dict(self.busy), self.host_seconds)

    def skip(self, before: Sums, seconds: float, count: int) -> None:
        """Add what was added since `before`, in so many seconds, `count` times more, and let all clocks go on."""
        for now, then in ((self.parts, before.parts), (self.busy, before.busy)):
            for sort, value in now.items():
                now[sort] = value + count * (value - then.get(sort, 0.0))
        self.host_seconds += count * (self.host_seconds - before.host_seconds)
        self.host += count * seconds
        for queue in self.queues():
            queue.shift(count * seconds)

    def _idle(self, begin: float, end: float, origin: Queue | None) -> None:
        """Say what the compute stream waits for where it has nothing to run: a queue's work, else the host."""
        if end <= begin:
            return
        latest = end
        if origin is not None and origin is not self.compute:
            for sort, first, last in origin.during(begin, end):
                _add(self.parts, sort, last - first)
                self._idle_for_host(last, latest)
                latest = first
        self._idle_for_host(begin, latest)

    def _idle_for_host(self, begin: float, end: float) -> None:
        """The host holds the compute stream back: by work that has a name, because it waits itself, by its dispatch."""
        left = end - begin
        if left <= 0:
            return
        for sort, first, last in self.cores.during(begin, end):
            _add(self.parts, sort, last - first)
            left -= last - first
        for since, until, queue in reversed(self._waits):
            if until <= begin:
                break
            for sort, first, last in queue.during(max(since, begin), min(until, end)):
                _add(self.parts, sort, last - first)
                left -= last - first
        if left > 0:
            _add(self.parts, HOST_BOUND, left)


def _add(sums: dict[str, float], sort: str, seconds: float) -> None:
    sums[sort] = sums.get(sort, 0.0) + seconds
