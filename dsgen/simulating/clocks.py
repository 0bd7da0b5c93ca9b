"""The clocks of one rank: a host that queues, streams that run, and what the compute stream waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dsgen.simulating.queues import Queue
from dsgen.simulating.timelines import HOST_BOUND

__all__ = ["COMPUTE", "Clocks", "Sums"]

COMPUTE = 0  # number of the default stream
_DEEPEST = 8  # queues that wait for each other in a row


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
            self._idle(stream, stream.worked, stream.end)
            self._idle(self.cores, stream.end, begin)
            _add(self.parts, sort, seconds)
        _add(self.busy, sort, seconds)
        stream.run(begin, seconds, sort, name, size_bytes)

    def beside(self, queue: Queue, stream: Queue | None, seconds: float, name: str, size_bytes: int) -> None:
        """Run a collective that waits for a stream, or a file's reading or writing: `name` is its sort too."""
        if stream is not None and stream.end > self.host:
            queue.wait(stream.end, stream.origin)
        _add(self.busy, name, seconds)
        queue.run(max(self.host, queue.end), seconds, name, name, size_bytes)

    def work(self, seconds: float, sort: str, name: str, size_bytes: int) -> None:
        """Let the host's cores work on tensors, and the host on nothing else."""
        _add(self.busy, sort, seconds)
        self.cores.run(self.host, seconds, sort, name, size_bytes)
        self.pay(seconds)

    def wait(self, until: float, origin: Queue) -> None:
        """Let the host wait for a queue."""
        if until > self.host:
            self.cores.idle(self.host, until, origin)
            self.host = until

    def close(self) -> float:
        """End the step: seconds until all is done, the last of it waited for."""
        last = max(self.queues(), key=lambda queue: queue.end)
        end, compute = max(self.host, last.end), self.compute
        self._idle(compute, compute.worked, compute.end)
        self._idle(last.origin if last.end > self.host else self.cores, compute.end, end)
        return end

    def sums(self) -> Sums:
        """What has been added up by now."""
        return Sums(dict(self.parts), dict(self.busy), self.host_seconds)

    def ends(self) -> dict[Queue, float]:
        """Queue -> when it has done all that it has; of the host's cores, where the host is."""
        return {queue: self.host if queue is self.cores else queue.end for queue in self.queues()}

    def skip(self, before: Sums, passed: Mapping[Queue, float], count: int) -> None:
        """Add what was added since `before` `count` times more, and let each clock go on by its own seconds."""
        for now, then in ((self.parts, before.parts), (self.busy, before.busy)):
            for sort, value in now.items():
                now[sort] = value + count * (value - then.get(sort, 0.0))
        self.host_seconds += count * (self.host_seconds - before.host_seconds)
        self.host += count * passed[self.cores]
        for queue in self.queues():
            queue.shift(count * passed[queue])

    def _idle(self, queue: Queue, begin: float, end: float, deepest: int = _DEEPEST) -> None:
        """Say what the compute stream waits for where it has nothing to run: what a queue did meanwhile.

        A queue that waits itself is explained by what it waits for, one that had nothing to do by the host, which had
        not queued anything; and the host, where it neither waits nor works on tensors, by its dispatch.
        """
        latest = end
        for first, last, what in queue.during(begin, end):
            self._rest(queue, last, latest)
            if isinstance(what, str):
                _add(self.parts, what, last - first)
            elif deepest:
                self._idle(what, first, last, deepest - 1)
            else:
                _add(self.parts, HOST_BOUND, last - first)
            latest = first
        self._rest(queue, begin, latest)

    def _rest(self, queue: Queue, begin: float, end: float) -> None:
        if end <= begin:
            return
        if queue is self.cores:
            _add(self.parts, HOST_BOUND, end - begin)
        else:
            self._idle(self.cores, begin, end)


def _add(sums: dict[str, float], sort: str, seconds: float) -> None:
    sums[sort] = sums.get(sort, 0.0) + seconds
