"""The program of a step, replayed with a clock on given hardware.

It stands here because it replays what a simulation recorded; the seconds of every entry are those of `dsgen.kernels`.
The host goes through the program: an operator costs it its dispatch, and starts when the host has queued it, its stream
is free, and all that the stream waits for has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dsgen.kernels import Rates
from dsgen.simulating import durations
from dsgen.simulating.clocks import Clocks
from dsgen.simulating.queues import Queue
from dsgen.simulating.timelines import PhaseTime, Timeline

__all__ = ["replay"]

_SORTS = {"product": "products", "attention": "attention", "traffic": "memory-bound", "copy": "copies"}
_OPTIMIZER_PHASE, _OPTIMIZER = "step", "optimizer"
_HOST_WORK, _CPU_ADAM = "host operators", "CPU optimizer"
_ALIKE = 1e-6  # share by which two passes differ that take the same time
_NUMBER_BYTES = 4  # what the host reads of a tensor that it asks for its value

Entry = Sequence[Any]


def replay(program: Mapping[str, Any], rates: Rates, *, ranks_per_node: int) -> Timeline:
    """The timeline of a program on given hardware.

    Args:
        program: `{"entries", "order", "loops"}`, as `dsgen.engine.simulate.programs` tells them.
        rates: The node and its network.
        ranks_per_node: Ranks that share the node, its drives and its cores.
    """
    run = _Replay(program["entries"], rates, ranks_per_node)
    order: Sequence[int] = program["order"]
    done = 0
    for begin, end, count in program["loops"]:
        run.through(order[done:end])
        run.again(order[begin:end], count)
        done = end
    run.through(order[done:])
    return run.timeline()


class _Replay:
    """The clocks, and where a program is."""

    def __init__(self, entries: Sequence[Entry], rates: Rates, ranks_per_node: int) -> None:
        self._entries, self._rates, self._ranks = entries, rates, ranks_per_node
        self._clocks = Clocks()
        self._known: dict[int, tuple[float, float]] = {}  # entry -> seconds and FLOPs
        self._slots: dict[int, tuple[float, Queue]] = {}
        self._flops = [0.0, 0.0]  # of the model, and with what is recomputed
        self._phases: list[tuple[str, int, float]] = []
        self._phase, self._pass = "", 0
        self._dispatch = {"python": rates.dispatch_seconds, "engine": rates.backward_dispatch_seconds, "hook": 0.0}
        self._do: dict[str, Callable[[int, Entry], None]] = {
            "phase": self._enter,
            "view": self._view,
            **dict.fromkeys(_SORTS, self._kernel),
            "collective": self._collective,
            "join": self._wait_slot,
            "record": self._record,
            "wait_event": self._wait_slot,
            "wait_stream": self._wait_stream,
            "sync_event": self._sync_slot,
            "sync_stream": self._sync_stream,
            "sync_device": self._sync_device,
            "item": self._item,
            "host": self._host,
            "adam": self._adam,
            "hook": self._hook,
            "file": self._file,
            "sync_files": self._sync_files,
        }

    def through(self, order: Sequence[int]) -> None:
        """Go through a part of the program."""
        entries, do = self._entries, self._do
        for number in order:
            entry = entries[number]
            do[entry[0]](number, entry)

    def again(self, order: Sequence[int], count: int) -> None:
        """Go through a pass `count` times more; once it takes as long as the one before, the rest is added up.

        Where nothing makes the host wait, it runs ahead of its queues, and each goes on at a pace of its own.
        """
        lasted: list[float] = []
        for turn in range(count):
            begin, before, flops = self._clocks.ends(), self._clocks.sums(), tuple(self._flops)
            self.through(order)
            passed = {queue: end - begin.get(queue, end) for queue, end in self._clocks.ends().items()}
            left, spent = count - turn - 1, list(passed.values())
            if left and _alike(spent, lasted):
                self._phases.append(("passes alike", self._pass + 1, self._clocks.host))
                self._clocks.skip(before, passed, left)
                self._flops = [now + left * (now - then) for now, then in zip(self._flops, flops, strict=True)]
                self._slots = {slot: (at + left * passed[queue], queue) for slot, (at, queue) in self._slots.items()}
                self._pass += left
                return
            lasted = spent

    def timeline(self) -> Timeline:
        """What has happened."""
        clocks = self._clocks
        end = clocks.close()
        ends = [*(begin for _, _, begin in self._phases[1:]), end]
        return Timeline(
            seconds=end,
            parts=dict(clocks.parts),
            busy=dict(clocks.busy),
            phases=tuple(
                PhaseTime(name, number, begin, until - begin)
                for (name, number, begin), until in zip(self._phases, ends, strict=False)
            ),
            host_seconds=clocks.host_seconds,
            model_flops=self._flops[0],
            hardware_flops=self._flops[1],
            nearest=self._rates.nearest,
            intervals=tuple(one for queue in clocks.queues() for one in queue.intervals),
        )

    def _of(self, number: int, entry: Entry) -> tuple[float, float]:
        known = self._known.get(number)
        if known is None:
            told = durations.seconds(entry, self._rates, self._ranks), durations.flops(entry)
            known = self._known[number] = told
        return known

    def _enter(self, _: int, entry: Entry) -> None:
        self._phase = entry[1]
        self._pass += entry[1] == "input"
        self._phases.append((entry[1], self._pass, self._clocks.host))

    def _view(self, _: int, entry: Entry) -> None:
        if entry[1] != "hook":
            self._clocks.pay(self._rates.view_seconds)

    def _kernel(self, number: int, entry: Entry) -> None:
        word, stream, call = entry[:3]
        seconds, flops = self._of(number, entry)
        sort = _SORTS[word]
        name, size = word, 0
        if word == "traffic":
            name, size = entry[4], entry[6]
            sort = _OPTIMIZER if self._phase == _OPTIMIZER_PHASE else sort
        elif word == "copy":
            name, size = entry[3], entry[4]
        elif not entry[3]:
            self._flops[0] += flops
        self._flops[1] += flops
        self._clocks.pay(self._dispatch[call])
        queue = self._clocks.stream(stream)
        self._clocks.kernel(queue, seconds, sort, name, size)
        if word == "copy" and entry[6]:
            self._clocks.wait(queue.end, queue)

    def _collective(self, number: int, entry: Entry) -> None:
        _, slot, stream, call, kind, size, *_ = entry
        clocks = self._clocks
        clocks.pay(0.0 if call == "hook" else self._rates.collective_dispatch_seconds)
        clocks.beside(clocks.collectives, clocks.stream(stream), self._of(number, entry)[0], kind, size)
        self._slots[slot] = clocks.collectives.end, clocks.collectives

    def _record(self, _: int, entry: Entry) -> None:
        queue = self._clocks.stream(entry[2])
        self._slots[entry[1]] = queue.end, queue.origin

    def _wait_slot(self, _: int, entry: Entry) -> None:
        if (known := self._slots.get(entry[1])) is not None:
            self._clocks.stream(entry[2]).wait(*known)

    def _wait_stream(self, _: int, entry: Entry) -> None:
        other = self._clocks.stream(entry[2])
        self._clocks.stream(entry[1]).wait(other.end, other.origin)

    def _sync_slot(self, _: int, entry: Entry) -> None:
        if (known := self._slots.get(entry[1])) is not None:
            self._clocks.wait(*known)

    def _sync_stream(self, _: int, entry: Entry) -> None:
        queue = self._clocks.stream(entry[1])
        self._clocks.wait(queue.end, queue.origin)

    def _sync_device(self, _: int, __: Entry) -> None:
        clocks = self._clocks
        last = max((queue for queue in clocks.queues() if queue is not clocks.drives), key=lambda queue: queue.end)
        clocks.wait(last.end, last.origin)

    def _item(self, number: int, entry: Entry) -> None:
        self._sync_stream(number, entry)
        copied = durations.seconds(("copy", 0, "", "to_host", _NUMBER_BYTES, True, True), self._rates, self._ranks)
        self._clocks.pay(self._rates.dispatch_seconds + copied)

    def _host(self, _: int, entry: Entry) -> None:
        seconds = durations.host_seconds(entry[2], entry[2], self._rates, self._ranks)
        self._clocks.work(self._rates.dispatch_seconds + seconds, _HOST_WORK, entry[1], entry[2])

    def _adam(self, _: int, entry: Entry) -> None:
        seconds = durations.host_seconds(entry[1], entry[2], self._rates, self._ranks)
        self._clocks.work(seconds, _CPU_ADAM, "adam", entry[2])

    def _hook(self, _: int, __: Entry) -> None:
        self._clocks.pay(self._rates.hook_seconds)

    def _file(self, number: int, entry: Entry) -> None:
        clocks = self._clocks
        clocks.beside(clocks.drives, None, self._of(number, entry)[0], f"drives, {entry[1]}", entry[2])

    def _sync_files(self, _: int, __: Entry) -> None:
        self._clocks.wait(self._clocks.drives.end, self._clocks.drives)


def _alike(now: Sequence[float], before: Sequence[float]) -> bool:
    """Whether a pass took every queue as long as the one before it."""
    longest = max(now, default=0.0)
    return len(now) == len(before) and all(
        abs(one - other) <= _ALIKE * longest for one, other in zip(now, before, strict=True)
    )
