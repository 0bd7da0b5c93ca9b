"""The clocks of one rank: a host that queues, and queues that run what they have, some of it slower beside others.

The host decides what is queued, so the queues run no further than the host has come: whatever it queues later begins
later. Only where passes are added up (`drain`) they run out, and what the next pass queues slows none of it.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from dsgen.simulating.queues import MARK, Queue, Task
from dsgen.simulating.timelines import ALIKE, HOST_BOUND

__all__ = ["COMPUTE", "Clocks", "HostRecord"]

COMPUTE = 0  # number of the default stream


class HostRecord(NamedTuple):
    """What the host did, other than its dispatch.

    Attributes:
        begin, end: Seconds from the begin of the step.
        sort, name, bytes: Of its cores' work on tensors, as in `Task`; of a wait there are none.
        task: What it waited for; None where it worked.
        phase: As in `Task`.
        module: As in `Task`.
    """

    begin: float
    end: float
    sort: str
    name: str
    bytes: int
    task: Task | None
    phase: int
    module: str


class Clocks:
    """Clocks that go on as work is queued. Collectives share a queue with those that cross the same links.

    Attributes:
        host: Where the host is.
        host_seconds: How long it has worked.
        phase, module: What it is in: of `Task`.
        records: What it did, in the order of time.
        compute, collectives, between, drives: Queues; further streams besides. Collectives of the ranks of a node have
            one, and those between nodes another.
    """

    def __init__(self) -> None:
        self.host = self.host_seconds = 0.0
        self.phase, self.module = 0, ""
        self.records: list[HostRecord] = []
        self.compute, self.collectives, self.drives = Queue("compute"), Queue("collectives"), Queue("drives")
        self._streams = {COMPUTE: self.compute}
        self.between = Queue("inter-node")
        self._queues = [self.compute, self.collectives, self.between, self.drives]
        self._now = 0.0
        self._kernels: dict[Task, float] = {}  # kernel that runs -> seconds of its work that are left
        self._others: dict[Task, float] = {}  # anything else that runs -> its end

    def stream(self, number: int) -> Queue:
        """The queue of a stream."""
        if number not in self._streams:
            self._streams[number] = Queue(f"stream {number}")
            self._queues.append(self._streams[number])
        return self._streams[number]

    def queues(self) -> list[Queue]:
        """All of them, streams first, the compute stream before the others."""
        return [*self._streams.values(), self.collectives, self.between, self.drives]

    def pay(self, seconds: float) -> None:
        """Let the host work, on nothing that has a name."""
        self.host += seconds
        self.host_seconds += seconds

    def work(self, seconds: float, sort: str, name: str, size_bytes: int) -> None:
        """Let the host's cores work on tensors, and the host on nothing else."""
        self._note(self.host + seconds, sort, name, size_bytes, None)
        self.pay(seconds)

    def put(self, queue: Queue, seconds: float, sort: str, name: str, size_bytes: int) -> Task:
        """Queue work."""
        task = queue.put(self.host)
        task.work, task.sort, task.name, task.bytes = seconds, sort, name, size_bytes
        task.phase, task.module = self.phase, self.module
        return task

    def wait(self, task: Task | None) -> None:
        """Let the host wait for a task."""
        if task is None:
            return
        if task.end is None:
            self._run(task)
        if task.end is not None and task.end > self.host:
            self._note(task.end, "", "", 0, task)
            self.host = task.end

    def drain(self) -> dict[Queue | None, float]:
        """Let every queue run out: queue -> when it has done all that it has; None -> where the host is."""
        marks = {queue: queue.mark(self.host) for queue in self.queues()}
        self._run(None)
        ends: dict[Queue | None, float] = {queue: (mark and mark.end) or 0.0 for queue, mark in marks.items()}
        ends[None] = self.host
        return ends

    def skip(self, passed: Mapping[Queue | None, float], count: int) -> None:
        """After `drain`: let each clock go on `count` times more by its own seconds."""
        for queue in self.queues():
            last = queue.last
            if last is not None and last.end is not None:
                task = self.put(queue, count * passed[queue], _sort(queue), ALIKE, 0)
                task.begin, task.end, task.cause = last.end, last.end + task.work, last
                queue.pending.clear()
        until = self.host + count * passed[None]
        self._note(until, HOST_BOUND, ALIKE, 0, None)
        self.host = until

    def _note(self, end: float, sort: str, name: str, size_bytes: int, task: Task | None) -> None:
        self.records.append(HostRecord(self.host, end, sort, name, size_bytes, task, self.phase, self.module))

    def _run(self, until: Task | None) -> None:
        """Let the queues run until a task is done; all that they have where none is named."""
        while until is None or until.end is None:
            slower = len(self._kernels) * (1 + max((task.slows for task in self._others), default=0.0))
            soonest, which = math.inf, None
            for queue in self._queues:
                if not queue.pending:
                    continue
                task = queue.pending[0]
                if task in self._kernels:
                    moment = self._now + self._kernels[task] * slower
                elif task in self._others:
                    moment = self._others[task]
                else:
                    begin = task.start() if task.begin is None else task.begin
                    if begin is None:
                        continue
                    moment = begin
                if moment < soonest:
                    soonest, which = moment, task
            if which is None:
                return
            self._step(which, soonest, slower)

    def _step(self, task: Task, moment: float, slower: float) -> None:
        """Go on to the moment at which a task begins or ends."""
        if self._kernels and moment > self._now:
            done = (moment - self._now) / slower
            for kernel in self._kernels:
                self._kernels[kernel] -= done
        self._now = moment
        if self._kernels.pop(task, None) is None and self._others.pop(task, None) is None:
            if task.work and task.shared:
                self._kernels[task] = task.work
                return
            if task.work:
                self._others[task] = moment + task.work
                return
        task.end = moment
        task.queue.pending.popleft()


def _sort(queue: Queue) -> str:
    """What a queue did last."""
    return next((task.sort for task in reversed(queue.tasks) if task.sort), MARK)
