"""The virtual GPU: a device that torch accepts and that holds nothing, with its streams."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["NAME", "Event", "Stream", "fake_mode", "register", "streams"]

NAME = "vgpu"


class _Streams:
    """Which stream is current: a new allocation belongs to it."""

    def __init__(self) -> None:
        self.current: Stream = Stream(number=0)
        self.default = self.current
        self.count = 1


class Stream:
    """A CUDA stream without work: everything asked of it is done at once."""

    def __init__(self, *_: Any, number: int | None = None, **__: Any) -> None:
        if number is None:
            number, streams.count = streams.count, streams.count + 1
        self.number = number

    def _done(self, *_: Any, **__: Any) -> None:
        return

    synchronize = wait_stream = wait_event = _done

    def record_event(self, event: Any = None) -> Any:
        """An event that has happened."""
        return event or Event()

    def query(self) -> bool:
        """Whether all work is done."""
        return True


class Event:
    """A CUDA event that has happened."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.event_id = None

    def _done(self, *_: Any, **__: Any) -> None:
        return

    record = synchronize = wait = _done

    def query(self) -> bool:
        """Whether it has happened."""
        return True

    def elapsed_time(self, _: Any) -> float:
        """Milliseconds: a simulation has no clock."""
        return 0.0


streams = _Streams()


class _Backend(torch.utils.backend_registration._DummyBackendModule):  # type: ignore[misc]
    """`torch.vgpu`, as far as torch, DeepSpeed and transformers ask for it."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def is_autocast_enabled(self) -> bool:
        return bool(torch.is_autocast_enabled(NAME))

    def synchronize(self, *_: Any) -> None:
        return


def register() -> None:
    """Make the device known to this process's torch; once."""
    torch.utils.backend_registration._setup_privateuseone_for_python_backend(rename=NAME, backend_module=_Backend())


def fake_mode() -> Any:
    """The mode in which every tensor is fake; a value that torch knows is not really copied to the device."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Mode(FakeTensorMode):  # type: ignore[misc]
        """torch takes a device of its kind for one with kernels; this one has none, like CUDA where there is no GPU."""

        avoid_device_init = True

    return Mode(allow_non_fake_inputs=True)
