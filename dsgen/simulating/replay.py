"""The program of a step, replayed with a clock on given hardware.

It stands here because it replays what a simulation recorded; the seconds of every entry are those of `dsgen.kernels`.
The host goes through the program: an operator costs it its dispatch, and starts when the host has queued it, its stream
is free, and all that the stream waits for has happened.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dsgen.kernels import Rates, four_bit_seconds, takes_turns
from dsgen.simulating import durations
from dsgen.simulating.clocks import Clocks
from dsgen.simulating.paths import History, Turns, add, intervals
from dsgen.simulating.queues import Queue, Task
from dsgen.simulating.timelines import ALIKE, EnteredPhase, PhaseTime, Timeline

__all__ = ["replay"]

_SORTS = {"product": "products", "attention": "attention", "traffic": "memory-bound", "copy": "copies"}
_OPTIMIZER_PHASE, _OPTIMIZER = "step", "optimizer"
_HOST_WORK, _CPU_ADAM = "host operators", "CPU optimizer"
_ALIKE = 1e-6  # share by which two passes differ that take the same time
_FOUR_BIT = "dequantize_4bit"  # as dsgen.engine.simulate.quantized notes it: once for a layer in a pass
_NUMBER_BYTES = 4  # what the host reads of a tensor that it asks for its value

Entry = Sequence[Any]


def replay(
    program: Mapping[str, Any], rates: Rates, *, ranks_per_node: int, stage: int, launcher: str, kernel: str
) -> Timeline:
    """The timeline of a program on given hardware.

    At stage 3 collectives and kernels take turns, whatever streams they are on: see `dsgen.kernels.takes_turns`.

    Args:
        program: `{"entries", "order", "loops", "held"}`, as `dsgen.engine.simulate.programs` tells them.
        rates: The node and its network.
        ranks_per_node: Ranks that share the node, its drives and its cores.
        stage: Of ZeRO.
        launcher: What starts the ranks: torchrun, deepspeed or bound, as in Training.
        kernel: What a fused attention runs: one of `dsgen.kernels.attention.KERNELS`.
    """
    run = _Replay(program, rates, ranks_per_node, takes_turns(stage), launcher, kernel)
    done = 0
    for begin, end, count in program["loops"]:
        run.through(done, end)
        run.again(begin, end, count)
        done = end
    run.through(done, len(program["order"]))
    return run.timeline()


class _Replay:
    """The clocks, and where a program is."""

    def __init__(
        self, program: Mapping[str, Any], rates: Rates, ranks_per_node: int, turns: bool, launcher: str, kernel: str
    ) -> None:
        self._entries: Sequence[Entry] = program["entries"]
        self._order: Sequence[int] = program["order"]
        self._held: Sequence[Sequence[int]] = program.get("held", ())
        self._rates, self._ranks, self._launcher, self._attention = rates, ranks_per_node, launcher, kernel
        self._clocks, self._takes_turns = Clocks(), turns
        self._known: dict[int, tuple[float, float]] = {}  # entry -> seconds and FLOPs
        self._slots: dict[int, Task | None] = {}
        self._flops = [0.0, 0.0]  # of the model, and with what is recomputed
        self._busy: dict[str, float] = {}
        self._phases: list[EnteredPhase] = []
        self._turns: list[Turns] = []
        self._memory: list[tuple[float, int]] = []
        self._phase, self._pass = "", 0
        self._dispatch = {"python": rates.dispatch_seconds, "engine": rates.backward_dispatch_seconds, "hook": 0.0}
        self._do: dict[str, Callable[[int, Entry], None]] = {
            "phase": self._enter,
            "module": self._module,
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
            "call": self._call,
            "file": self._file,
            "sync_files": self._sync_files,
        }

    def through(self, begin: int, end: int) -> None:
        """Go through a part of the program."""
        entries, do = self._entries, self._do
        first = bisect.bisect_left(self._held, begin, key=_place)
        until = bisect.bisect_left(self._held, end, key=_place)
        for place, size in (*self._held[first:until], (end, 0)):
            for number in self._order[begin:place]:
                entry = entries[number]
                do[entry[0]](number, entry)
            if place < end:
                self._memory.append((self._clocks.host, size))
            begin = place

    def again(self, begin: int, end: int, count: int) -> None:
        """Go through a pass `count` times more; once it takes as long as the one before, the rest is added up.

        Where nothing makes the host wait, it runs ahead of its queues, and each goes on at a pace of its own.
        """
        lasted: list[float] = []
        clocks = self._clocks
        ended = clocks.drain()
        for turn in range(count):
            began, busy, flops, worked = ended, dict(self._busy), tuple(self._flops), clocks.host_seconds
            first = len(self._phases)
            self.through(begin, end)
            ended = clocks.drain()
            passed = {queue: now - began.get(queue, now) for queue, now in ended.items()}
            left, spent = count - turn - 1, list(passed.values())
            if left and _alike(spent, lasted):
                self._turns.append(Turns(len(self._phases), (first, len(self._phases)), left))
                self._begin(ALIKE, self._pass + 1)
                clocks.skip(passed, left)
                self._pass += left
                clocks.host_seconds += left * (clocks.host_seconds - worked)
                self._flops = [now + left * (now - then) for now, then in zip(self._flops, flops, strict=True)]
                self._busy = {sort: now + left * (now - busy.get(sort, 0.0)) for sort, now in self._busy.items()}
                self._slots = {
                    slot: task and task.later(left * passed[task.queue]) for slot, task in self._slots.items()
                }
                return
            lasted = spent

    def timeline(self) -> Timeline:
        """What has happened."""
        clocks = self._clocks
        clocks.drain()
        history = History(clocks, self._phases, self._turns)
        filled = history.parts()
        parts: dict[str, float] = {}
        for one in filled:
            for sort, seconds in one.items():
                add(parts, sort, seconds)
        path, stretches = history.path()
        ends = [*(phase.begin for phase in self._phases[1:]), history.end]
        return Timeline(
            seconds=history.end,
            parts=parts,
            busy=self._busy,
            path=path,
            stretches=stretches,
            phases=tuple(
                PhaseTime(phase.phase, phase.micro_batch, phase.begin, until - phase.begin, own)
                for phase, until, own in zip(self._phases, ends, filled, strict=False)
            ),
            host_seconds=clocks.host_seconds,
            model_flops=self._flops[0],
            hardware_flops=self._flops[1],
            nearest=self._rates.nearest,
            intervals=intervals(clocks),
            memory=tuple(self._memory),
        )

    def _of(self, number: int, entry: Entry) -> tuple[float, float]:
        known = self._known.get(number)
        if known is None:
            told = durations.seconds(entry, self._rates, self._ranks, self._attention), durations.flops(entry)
            known = self._known[number] = told
        return known

    def _begin(self, phase: str, number: int) -> None:
        self._clocks.phase = len(self._phases)
        self._phases.append(EnteredPhase(phase, number, self._clocks.host))

    def _enter(self, _: int, entry: Entry) -> None:
        self._phase = entry[1]
        self._pass += entry[1] == "input"
        self._begin(self._phase, self._pass)

    def _module(self, _: int, entry: Entry) -> None:
        self._clocks.module = entry[1]

    def _view(self, _: int, entry: Entry) -> None:
        if entry[1] != "hook":
            self._clocks.pay(self._rates.view_seconds)

    def _put(self, queue: Queue, seconds: float, sort: str, name: str, size_bytes: int) -> Task:
        add(self._busy, sort, seconds)
        return self._clocks.put(queue, seconds, sort, name, size_bytes)

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
        if name == _FOUR_BIT:
            self._clocks.pay(four_bit_seconds(self._rates, 1))
        task = self._put(self._clocks.stream(stream), seconds, sort, name, size)
        if not size:
            task.sizes = durations.sizes(entry)
        if word != "copy":
            task.shared = True
        elif entry[6]:
            self._clocks.wait(task)

    def _collective(self, number: int, entry: Entry) -> None:
        _, slot, stream, call, kind, size, ranks, of_node = entry
        clocks, rates = self._clocks, self._rates
        clocks.pay(0.0 if call == "hook" else rates.collective_dispatch_seconds)
        queue = clocks.between if ranks > of_node else clocks.collectives
        queue.wait(clocks.stream(stream).mark(clocks.host), clocks.host)
        if self._takes_turns:
            queue.wait(clocks.compute.mark(clocks.host), clocks.host)
        sort = f"{kind}, {durations.link(entry, rates)}"
        task = self._put(queue, self._of(number, entry)[0], sort, kind, size)
        task.slows = durations.contention(entry, rates, self._ranks)
        self._slots[slot] = task
        if self._takes_turns:
            clocks.compute.wait(task, clocks.host)

    def _record(self, _: int, entry: Entry) -> None:
        self._slots[entry[1]] = self._clocks.stream(entry[2]).mark(self._clocks.host)

    def _wait_slot(self, _: int, entry: Entry) -> None:
        self._clocks.stream(entry[2]).wait(self._slots.get(entry[1]), self._clocks.host)

    def _wait_stream(self, _: int, entry: Entry) -> None:
        other = self._clocks.stream(entry[2]).mark(self._clocks.host)
        self._clocks.stream(entry[1]).wait(other, self._clocks.host)

    def _sync_slot(self, _: int, entry: Entry) -> None:
        self._clocks.wait(self._slots.get(entry[1]))

    def _sync_stream(self, _: int, entry: Entry) -> None:
        self._clocks.wait(self._clocks.stream(entry[1]).mark(self._clocks.host))

    def _sync_device(self, _: int, __: Entry) -> None:
        clocks = self._clocks
        for queue in clocks.queues():
            if queue is not clocks.drives:
                clocks.wait(queue.mark(clocks.host))

    def _item(self, number: int, entry: Entry) -> None:
        self._sync_stream(number, entry)
        read = ("copy", 0, "", "to_host", _NUMBER_BYTES, True, True)
        copied = durations.seconds(read, self._rates, self._ranks, self._attention)
        self._clocks.pay(self._rates.dispatch_seconds + copied)

    def _host(self, _: int, entry: Entry) -> None:
        seconds = durations.host_seconds(entry[2], entry[3], self._rates, self._ranks, self._launcher)
        self._work(self._rates.dispatch_seconds + seconds, _HOST_WORK, entry[1], entry[2])

    def _adam(self, _: int, entry: Entry) -> None:
        seconds = durations.adam_seconds(entry[1], entry[2], self._rates, self._ranks, self._launcher)
        self._work(seconds, _CPU_ADAM, "adam", entry[2])

    def _work(self, seconds: float, sort: str, name: str, size_bytes: int) -> None:
        add(self._busy, sort, seconds)
        self._clocks.work(seconds, sort, name, size_bytes)

    def _hook(self, _: int, __: Entry) -> None:
        self._clocks.pay(self._rates.hook_seconds)

    def _call(self, _: int, __: Entry) -> None:
        self._clocks.pay(self._rates.module_seconds)

    def _file(self, number: int, entry: Entry) -> None:
        name = f"drives, {entry[1]}"
        self._put(self._clocks.drives, self._of(number, entry)[0], name, name, entry[2])

    def _sync_files(self, _: int, __: Entry) -> None:
        self._clocks.wait(self._clocks.drives.mark(self._clocks.host))


def _place(noted: Sequence[int]) -> int:
    return noted[0]


def _alike(now: Sequence[float], before: Sequence[float]) -> bool:
    """Whether a pass took every queue as long as the one before it."""
    longest = max(now, default=0.0)
    return len(now) == len(before) and all(
        abs(one - other) <= _ALIKE * longest for one, other in zip(now, before, strict=True)
    )
