"""Queues of work that run beside the host, one thing after another, and the tasks in them."""

from __future__ import annotations

from collections import deque

__all__ = ["MARK", "Queue", "Task"]

MARK = ""  # sort of a task that is no work: a moment of its queue


class Task:
    """A kernel, a copy, a collective, a file's reading or writing, or a moment that something else can wait for.

    Attributes:
        queue: Where it runs.
        before: What runs there before it; None of the first.
        needs: What else it waits for.
        ready: When the host has queued it.
        work: Seconds that it takes alone.
        shared: Whether it runs on the GPU's processors, which kernels of other streams and collectives use too.
        slows: By which share of their time kernels beside it take longer.
        sort: The part that it counts as.
        name: Operator, kernel or collective.
        bytes: Read, written or sent; 0 of products and attention.
        sizes: Of products and attention, as `Interval.sizes`; else empty.
        phase: Number of the phase in which the host queues it.
        module: The model's module that the host is in; empty outside.
        begin, end: Seconds from the begin of the step; None until it is known.
        cause: What it waited for last; None where that was the host.
    """

    __slots__ = (
        "before", "begin", "bytes", "cause", "end", "module", "name", "needs", "phase", "queue", "ready", "shared",
        "sizes", "slows", "sort", "work",
    )  # fmt: skip

    def __init__(self, queue: Queue, before: Task | None, needs: tuple[Task, ...], ready: float) -> None:
        self.queue, self.before, self.needs, self.ready = queue, before, needs, ready
        self.work = self.slows = 0.0
        self.shared = False
        self.sort = self.name = MARK
        self.sizes = ""
        self.bytes, self.phase, self.module = 0, 0, ""
        self.begin: float | None = None
        self.end: float | None = None
        self.cause: Task | None = None

    def start(self) -> float | None:
        """When it begins, which it then knows; None while something that it waits for is not done."""
        begin, cause = self.ready, None
        for other in (self.before, *self.needs):
            if other is None:
                continue
            if other.end is None:
                return None
            if other.end > begin or (other.end == begin and cause is None):
                begin, cause = other.end, other
        self.begin, self.cause = begin, cause
        return begin

    def later(self, seconds: float) -> Task:
        """The same moment of what comes so much later, and is over too."""
        task = Task(self.queue, None, (), self.ready)
        task.begin = task.end = (self.end or 0.0) + seconds
        task.cause, task.phase = self.queue.last, self.phase
        return task


class Queue:
    """A stream, the collectives or the drives.

    Attributes:
        name: As in `Interval.queue`.
        tasks: All that it got, in order.
        pending: Those that are not done.
    """

    __slots__ = ("_needs", "name", "pending", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.tasks: list[Task] = []
        self.pending: deque[Task] = deque()
        self._needs: list[Task] = []

    @property
    def last(self) -> Task | None:
        """The last task that it got."""
        return self.tasks[-1] if self.tasks else None

    def put(self, ready: float) -> Task:
        """A new task at its end, which waits for all that the queue was told to wait for."""
        task = Task(self, self.last, tuple(self._needs), ready)
        if self._needs:
            self._needs = []
        self.tasks.append(task)
        self.pending.append(task)
        return task

    def wait(self, task: Task | None, host: float) -> None:
        """Begin later work no earlier than the end of a task; the host's clock says what is over anyway."""
        if task is not None and task.queue is not self and (task.end is None or task.end > host):
            self._needs.append(task)

    def mark(self, host: float) -> Task | None:
        """The task that ends when all is done that it has and waits for; None where there is nothing."""
        return self.put(host) if self._needs else self.last
