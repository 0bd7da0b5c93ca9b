"""The program of a step: what the host queues, waits for and does, in order, without a clock.

No torch here, as in the ledger. Entries are tuples of plain values, told apart by the first, which are interned: a
program is a table of distinct entries and a list of places in it. Durations are given to it by whoever knows hardware
(`dsgen.simulating.replay`), so one run of the engine can be timed on many cards and networks.

Entry, and what is in it after its name:
    phase       name, micro-batch
    module      name                                    what follows belongs to it: "model.layers.3.mlp"
    view        call                                    an operator without a kernel: views, empty tensors
    product     stream, call, again, m, n, k, batch, dtype
    attention   stream, call, again, direction, batch, heads, key heads, queries, keys, head size, causal, window,
                dtype
    traffic     stream, call, again, operator, sort, bytes           every other kernel: bytes read and written
    copy        stream, call, direction, bytes, pinned, blocking
    collective  slot, stream, call, kind, bytes, ranks, ranks of a node
    join        slot, stream                            the stream waits for a collective
    record      slot, stream                            an event
    wait_event  slot, stream                            the stream waits for an event
    wait_stream stream, other stream
    sync_event  slot                                    the host waits; likewise the next three
    sync_stream stream
    sync_device
    item        stream                                  and reads a number
    host        operator, bytes, new bytes              the host's cores work on tensors of its own; of what they write,
                                                        what is memory that the kernel gives anew
    adam        elements, bytes                         CPU Adam
    call                                                forward calls a module with parameters, or peft's layer of one
    hook                                                ZeRO-3's hooks of one module with parameters
    file        direction, bytes
    sync_files

`call` says what the host pays: "python", "engine" (autograd's C++ calls it) or "hook" (inside a hook, which is paid as
a whole); `again` says that backward recomputes. A slot is where the end of a collective or an event is kept; one that
nothing refers to any more is used again.
"""

from __future__ import annotations

import heapq
from array import array
from typing import Any

__all__ = ["ENGINE", "HOOK", "PYTHON", "Program"]

PYTHON, ENGINE, HOOK = "python", "engine", "hook"
_APART = 32  # entries between two notes of what is alive


class Program:
    """What one rank's host does in a step.

    Attributes:
        newest: Slot of the collective that was queued last.
        inside: How many of DeepSpeed's hooks are running.
        held: Place in the program, and the most bytes of tensors on the GPU from there to the next one.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._order = array("i")
        self._loops: list[tuple[int, int, int]] = []
        self._free: list[int] = []
        self._slots = 0
        self._module = ""
        self.newest = -1
        self.inside = 0
        self.held: list[list[int]] = []

    def __len__(self) -> int:
        return len(self._order)

    def add(self, *entry: Any) -> None:
        """Write an entry down."""
        number = self._numbers.get(entry)
        if number is None:
            number = self._numbers[entry] = len(self._numbers)
        self._order.append(number)

    def collective(self, *entry: Any) -> None:
        """Write a collective down, which gets a slot: `stream, call, kind, bytes, ranks, ranks of a node`."""
        self.newest = self.slot()
        self.add("collective", self.newest, *entry)

    def kernel(self, stream: int, name: str, sort: str, moved: int) -> None:
        """Write a kernel down that a stand-in leaves out: `moved` bytes are read and written."""
        self.add("traffic", stream, HOOK if self.inside else PYTHON, False, name, sort, moved)

    def enter(self, module: str) -> None:
        """Write down which module of the model is at work, where that is another than before."""
        if module != self._module:
            self._module = module
            self.add("module", module)

    def hold(self, size: int) -> None:
        """Note how many bytes are alive."""
        place = len(self._order)
        if self.held and place - self.held[-1][0] < _APART:
            self.held[-1][1] = max(self.held[-1][1], size)
        else:
            self.held.append([place, size])

    def slot(self) -> int:
        """The smallest free slot."""
        if self._free:
            return heapq.heappop(self._free)
        self._slots += 1
        return self._slots - 1

    def release(self, slot: int) -> None:
        """Nothing refers to a slot any more."""
        heapq.heappush(self._free, slot)

    def repeat(self, begin: int, count: int) -> None:
        """Do what was written since `begin` so many times more.

        An event or a collective that a pass hands to the next is then looked for where the last one put its own.
        """
        self._loops.append((begin, len(self._order), count))

    def told(self) -> dict[str, Any]:
        """As plain JSON values: `entries`, `order` (places in them), `loops` (begin, end, times more), `held`."""
        return {
            "entries": [list(entry) for entry in self._numbers],
            "order": list(self._order),
            "loops": [list(loop) for loop in self._loops],
            "held": self.held,
        }
