"""DeepSpeed's accelerator over the virtual GPU."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

from dsgen.engine.simulate import ops
from dsgen.engine.simulate.devices import NAME, Event, Stream, on_stream, streams

__all__ = ["VirtualAccelerator"]


class VirtualAccelerator(CPU_Accelerator):  # type: ignore[misc]
    """DeepSpeed's view of the virtual GPU: where CUDA and the CPU differ, it answers as CUDA does.

    Args:
        memory_bytes: Size of the GPU's memory; DeepSpeed flattens on the CPU where little is free.
        allocated: Bytes that live on the GPU now.
        emptied: Called when the engine empties the allocator's cache.
        pin: Makes a page-locked copy (with content) or twin (without) of a host tensor.
        is_pinned: Whether a host tensor is page-locked.
    """

    _torch_pins_host_memory = True

    def __init__(
        self,
        memory_bytes: int,
        devices: int,
        allocated: Callable[[], int],
        emptied: Callable[[], None],
        pin: Callable[[Any, Any], Any],
        is_pinned: Callable[[Any], bool],
    ) -> None:
        super().__init__()
        self._name = NAME
        self._communication_backend_name = "fake"
        self._memory_bytes, self._devices = memory_bytes, devices
        self._allocated, self._emptied, self._pin, self._pinned = allocated, emptied, pin, is_pinned

    # As CUDA_Accelerator: work is asynchronous, so the engine keeps streams and double buffers.
    def is_synchronized_device(self) -> bool:
        return False

    def use_host_timers(self) -> bool:
        return True  # timers of CUDA events would need a clock

    def device_name(self, device_index: int | None = None) -> str:
        return NAME if device_index is None else f"{NAME}:{device_index}"

    def device(self, device_index: int | None = None) -> Any:
        return torch.device(NAME, 0)

    def current_device(self) -> int:
        return 0

    def current_device_name(self) -> str:
        return f"{NAME}:0"

    def device_count(self) -> int:
        return self._devices

    def on_accelerator(self, tensor: Any) -> bool:
        return bool(tensor.device.type == NAME)

    def is_fp16_supported(self) -> bool:
        return True

    Stream = property(lambda self: Stream)
    Event = property(lambda self: Event)

    def stream(self, stream: Any) -> contextlib.AbstractContextManager[None]:
        return on_stream(stream if isinstance(stream, Stream) else streams.current)

    def current_stream(self, device_index: int | None = None) -> Any:
        return streams.current

    def default_stream(self, device_index: int | None = None) -> Any:
        return streams.default

    def synchronize(self, device_index: int | None = None) -> None:
        streams.note("sync_device")

    def empty_cache(self) -> None:
        self._emptied()

    def memory_allocated(self, device_index: int | None = None) -> int:
        return self._allocated()

    max_memory_allocated = memory_cached = max_memory_cached = memory_allocated
    memory_reserved = max_memory_reserved = memory_allocated

    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        return

    reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats

    def memory_stats(self, device_index: int | None = None) -> dict[str, int]:
        return {"allocated_bytes.all.current": self._allocated(), "allocated_bytes.all.peak": self._allocated()}

    def total_memory(self, device_index: int | None = None) -> int:
        return self._memory_bytes

    def available_memory(self, device_index: int | None = None) -> int:
        return self._memory_bytes - self._allocated()

    def _typed(self, dtype: torch.dtype) -> Any:
        return functools.partial(torch.tensor, dtype=dtype, device=NAME)

    BFloat16Tensor = property(lambda self: self._typed(torch.bfloat16))
    ByteTensor = property(lambda self: self._typed(torch.uint8))
    DoubleTensor = property(lambda self: self._typed(torch.double))
    FloatTensor = property(lambda self: self._typed(torch.float))
    HalfTensor = property(lambda self: self._typed(torch.half))
    IntTensor = property(lambda self: self._typed(torch.int))
    LongTensor = property(lambda self: self._typed(torch.long))

    def _torch_pin_memory(self, tensor: Any) -> Any:
        return self._pin(tensor, tensor.shape)

    def _torch_empty_pinned(self, tensor: Any, shape: Any) -> Any:
        return self._pin(tensor, shape)

    def _torch_is_pinned(self, tensor: Any) -> bool:
        return self._pinned(tensor)

    def pin_memory(self, tensor: Any, make_copy: bool = True, match_shape: bool = True) -> Any:
        return self._pin(tensor, tensor.shape if match_shape else (tensor.numel(),))

    def create_op_builder(self, class_name: str) -> Any:
        # As CUDA_Accelerator: it has no operator for collectives through shared memory.
        return None if class_name == "ShareMemCommBuilder" else ops.Builder(class_name)

    def get_op_builder(self, class_name: str) -> Any:
        return functools.partial(ops.Builder, class_name)
