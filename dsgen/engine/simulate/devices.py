"""The virtual GPU: a device that torch accepts and that holds nothing, with its streams."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import backend_registration

from dsgen.engine.simulate.programs import Program

__all__ = ["NAME", "Event", "Stream", "fake_mode", "on_stream", "register", "streams", "telling"]

NAME = "vgpu"


class _Streams:
    """Which stream is current: a new allocation belongs to it; and the program that actions are written to, if any."""

    def __init__(self) -> None:
        self.current: Stream = Stream(number=0)
        self.default = self.current
        self.count = 1
        self.program: Program | None = None

    def note(self, *entry: Any) -> None:
        """Write an entry of the program down, where there is one."""
        if self.program is not None:
            self.program.add(*entry)


class Stream:
    """A CUDA stream without work: everything asked of it is done at once, and noted."""

    def __init__(self, *_: Any, number: int | None = None, **__: Any) -> None:
        if number is None:
            number, streams.count = streams.count, streams.count + 1
        self.number = number

    def synchronize(self) -> None:
        """The host waits for all work."""
        streams.note("sync_stream", self.number)

    def wait_stream(self, other: Stream) -> None:
        """Later work waits for what another stream has by now."""
        streams.note("wait_stream", self.number, other.number)

    def wait_event(self, event: Event) -> None:
        """Later work waits for an event."""
        event.wait(self)

    def record_event(self, event: Event | None = None) -> Event:
        """An event that has happened."""
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether all work is done."""
        return True


class Event:
    """A CUDA event that has happened."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.event_id = None
        self._slot: int | None = None  # of the program that it was recorded in

    def record(self, stream: Stream | None = None) -> None:
        """It happens when a stream has done what it has by now."""
        if streams.program is not None:
            if self._slot is None:
                self._slot = streams.program.slot()
            streams.program.add("record", self._slot, (stream or streams.current).number)

    def wait(self, stream: Stream | None = None) -> None:
        """Later work of a stream waits for it; one from before the program has happened."""
        if self._slot is not None:
            streams.note("wait_event", self._slot, (stream or streams.current).number)

    def synchronize(self) -> None:
        """The host waits for it."""
        if self._slot is not None:
            streams.note("sync_event", self._slot)

    def query(self) -> bool:
        """Whether it has happened: not yet, to a program, which knows no times.

        Who asks (DeepSpeed's limits on fetches and reductions in flight) then synchronizes with the event, which costs
        nothing where it has happened.
        """
        return streams.program is None

    def __del__(self) -> None:
        if self._slot is not None and streams.program is not None:
            streams.program.release(self._slot)

    def elapsed_time(self, _: Any) -> float:
        """Milliseconds: a simulation has no clock."""
        return 0.0


streams = _Streams()


@contextlib.contextmanager
def on_stream(stream: Stream) -> Iterator[None]:
    """Let work and allocations belong to a stream."""
    before, streams.current = streams.current, stream
    try:
        yield
    finally:
        streams.current = before


class _Backend(backend_registration._DummyBackendModule):  # type: ignore[misc]
    """`torch.vgpu`, as far as torch, DeepSpeed and transformers ask for it."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def is_autocast_enabled(self) -> bool:
        return bool(torch.is_autocast_enabled(NAME))

    def synchronize(self, *_: Any) -> None:
        streams.note("sync_device")


# Called from Python it raises the error that waits. By its own name: the look-up of an attribute may lose the error.
_raise_waiting = ctypes.pythonapi.PyErr_Occurred


class _Guard(backend_registration._DummyDeviceGuard):  # type: ignore[misc]
    """What torch's C++ asks of the device whenever a thread enters or leaves it.

    Where a hook fails in backward, C++ leaves the device while the error still waits to be raised. No Python function
    can be called in that state, and C++ ends the process when this one cannot: so the error is taken away and kept.
    An instance must have no attributes: while an error waits, Python finds a method only where it need not look there.
    """

    def type_(self) -> Any:
        try:
            _raise_waiting()
        except BaseException as error:
            _taken.append(error)
        # Of each thread its own, and torch's fake mode sets it for one only: a list as an index becomes a tensor,
        # which must not be made on a device that has no kernels.
        torch._C._set_only_lift_cpu_tensors(True)
        return torch._C._autograd.DeviceType.PrivateUse1


_guard = _Guard()
_taken: list[BaseException] = []  # errors that waited, in the order of their coming


@contextlib.contextmanager
def telling() -> Iterator[None]:
    """Raise an error of a hook in backward as it was, also where torch has lost it on its way."""
    _taken.clear()
    try:
        yield
    except SystemError as error:
        if not _taken:
            raise
        raise _taken[0] from error


def register() -> None:
    """Make the device known to this process's torch; once."""
    backend_registration._setup_privateuseone_for_python_backend(
        rename=NAME, backend_module=_Backend(), device_guard=_guard
    )


def fake_mode() -> Any:
    """The mode in which every tensor is fake; a value that torch knows is not really copied to the device."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Mode(FakeTensorMode):  # type: ignore[misc]
        """torch takes a device of its kind for one with kernels; this one has none, like CUDA where there is no GPU."""

        avoid_device_init = True

    return Mode(allow_non_fake_inputs=True)
