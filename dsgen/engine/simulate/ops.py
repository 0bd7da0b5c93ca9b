"""Stand-ins for DeepSpeed's compiled operators: they take what the real ones take and change no memory.

The real kernels update tensors in place (csrc/adam, csrc/lion, csrc/adagrad) or move bytes between a host buffer and a
file (csrc/aio); neither allocates a tensor. Those of LAMB (csrc/lamb) and ZeRO++ (csrc/quantization) return new ones.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any

from dsgen.engine.simulate.devices import NAME, streams

__all__ = ["FILES", "Builder", "written"]

# Builders whose operators only update in place, or move bytes to files. Any other operator is refused by name.
_IN_PLACE = frozenset(
    {"FusedAdamBuilder", "CPUAdamBuilder", "CPUAdagradBuilder", "CPULionBuilder", "FusedLionBuilder", "UtilsBuilder"}
)
_FILES = frozenset({"AsyncIOBuilder"})
FILES: dict[str, int] = {}  # file -> bytes: what the process that simulates would have on its drive
_QUANTIZER = frozenset({"QuantizerBuilder"})
_LAMB = frozenset({"FusedLambBuilder"})


class Builder:
    """What `get_accelerator().create_op_builder` returns: knows whether an operator can be stood in for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def is_compatible(self, verbose: bool = False) -> bool:
        """Whether there is a stand-in."""
        return self.name in _IN_PLACE | _FILES | _QUANTIZER | _LAMB

    def load(self, verbose: bool = True) -> Any:
        """The stand-in.

        Raises:
            NotImplementedError: There is none, so what the operator allocates is not known.
        """
        if self.name in _IN_PLACE:
            return _InPlace()
        if self.name in _FILES:
            return _Files()
        if self.name in _QUANTIZER:
            return _Quantizer()
        if self.name in _LAMB:
            return _Lamb()
        raise NotImplementedError(f"the simulation has no stand-in for DeepSpeed's {self.name}")


class _InPlace:
    """A compiled module whose functions change tensors in place and return nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return functools.partial(_updated, name)


class _Lamb:
    """The module of csrc/lamb: two partial sums of the norms, gone when it returns, and a coefficient that is kept."""

    _SUMS = 512  # numbers of each partial sum

    def lamb(self, weight: Any, *_: Any) -> Any:
        """Lamb of fused_lamb_cuda.cpp; its own tensors are fp32 where the weight is fp16, else of its type."""
        import torch

        dtype = torch.float32 if weight.dtype == torch.float16 else weight.dtype
        sums = [torch.empty(self._SUMS, dtype=dtype, device=weight.device) for _ in range(2)]
        coefficient = torch.empty(1, dtype=dtype, device=weight.device)
        del sums
        return coefficient


class _Quantizer:
    """The module of csrc/quantization/pt_binding.cpp, as far as ZeRO++ calls it; scales are fp32, one for each group.

    The results are on the accelerator, whatever the arguments are.
    """

    Symmetric, Asymmetric = 0, 1  # quantize::Type; only the asymmetric kind has an offset beside the scale

    def _scales(self, groups: int, kind: int) -> Any:
        return self._empty((groups, 1 + kind), "float32")

    @staticmethod
    def _empty(shape: Any, dtype: str) -> Any:
        import torch
        from deepspeed.accelerator import get_accelerator

        return torch.empty(shape, dtype=getattr(torch, dtype), device=get_accelerator().current_device_name())

    def quantize(self, values: Any, groups: int, bits: int, kind: int) -> Any:
        """quantize_kernel: packed numbers and their scales."""
        *rest, last = values.shape
        scales = self._scales(groups, kind)
        return [self._empty((*rest, last // (8 // bits)), "int8"), scales]

    def dequantize(self, packed: Any, scales: Any, groups: int, bits: int, kind: int) -> Any:
        """dequantize<__half>: always fp16."""
        *rest, last = packed.shape
        return self._empty((*rest, last * (8 // bits)), "float16")

    def swizzle_quant(self, values: Any, groups: int, bits: int, kind: int, *_: int) -> Any:
        """ds_swizzle_quant: packed numbers in one dimension, and their scales."""
        scales = self._scales(groups, kind)
        return [self._empty((values.numel() // (8 // bits),), "int8"), scales]

    def quantized_reduction(
        self, packed: Any, scales: Any, groups: int, out_groups: int, bits: int, kind: int, devices: int
    ) -> Any:
        """The sum over a node, packed again."""
        *rest, last = packed.shape
        made = self._scales(out_groups, kind)
        return [self._empty((*rest, last // devices), "int8"), made]


class _Files:
    """The module of csrc/aio: handles whose reads and writes succeed at once."""

    def aio_handle(self, *args: Any, **kwargs: Any) -> Any:
        """A handle of libaio."""
        return _Handle(*args)


def _note_file(buffer: Any, path: Any) -> None:
    FILES[str(path)] = max(FILES.get(str(path), 0), _bytes(buffer))


def written() -> dict[str, int]:
    """Bytes of the files that one rank has written, by what is in them: a file is as long as its longest write."""
    by_kind: dict[str, int] = {}
    for path, size in FILES.items():
        kind = "parameters" if f"params{os.sep}" in path else "optimizer states"
        by_kind[kind] = by_kind.get(kind, 0) + size
    return by_kind


class _Handle:
    """An aio_handle: it counts what is in flight, as the engine asserts on that."""

    def __init__(self, block_size: int = 1 << 20, queue_depth: int = 8, *rest: Any) -> None:
        self._block_size, self._queue_depth = block_size, queue_depth
        self._threads = int(rest[2]) if len(rest) > 2 else 1
        self._waiting = 0

    def get_block_size(self) -> int:
        """Bytes of one request."""
        return int(self._block_size)

    def get_queue_depth(self) -> int:
        """Requests in flight at most."""
        return int(self._queue_depth)

    def get_intra_op_parallelism(self) -> int:
        """Threads that share one request; buffers are aligned to their number."""
        return self._threads

    def get_alignment(self) -> int:
        """Bytes a buffer is aligned to."""
        return 512 * self._threads

    def new_cpu_locked_tensor(self, elements: int, example: Any) -> Any:
        """A page-locked host buffer of the example's type."""
        from deepspeed.accelerator import get_accelerator

        return get_accelerator().pin_empty(int(elements), dtype=example.dtype)

    def is_pinned(self, tensor: Any) -> bool:
        """Whether a host buffer is page-locked."""
        from deepspeed.accelerator import get_accelerator

        return bool(get_accelerator().is_pinned(tensor))

    def free_cpu_locked_tensor(self, tensor: Any) -> bool:
        """The buffer goes when its last reference does."""
        return True

    def _ask(self, buffer: Any, *_: Any) -> int:
        streams.note("file", "read", _bytes(buffer))
        self._waiting += 1
        return 0

    async_pread = pread = _ask

    def _keep(self, buffer: Any, path: Any, *_: Any) -> int:
        _note_file(buffer, path)
        streams.note("file", "write", _bytes(buffer))
        self._waiting += 1
        return 0

    async_pwrite = pwrite = _keep

    def _now(self, buffer: Any, *_: Any) -> int:
        streams.note("file", "read", _bytes(buffer))
        streams.note("sync_files")
        return 1

    sync_pread = read = _now

    def _keep_now(self, buffer: Any, path: Any, *_: Any) -> int:
        _note_file(buffer, path)
        streams.note("file", "write", _bytes(buffer))
        streams.note("sync_files")
        return 1

    sync_pwrite = write = _keep_now

    def wait(self) -> int:
        """Requests that are done since the last call."""
        streams.note("sync_files")
        done, self._waiting = self._waiting, 0
        return done


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _updated(name: str, *args: Any, **_: Any) -> None:
    """An operator that changes tensors in place: gradients are read, the rest is read and written."""
    if streams.program is None:
        return
    given = list(_tensors(args))
    of_gpu = [one for one in given if one.device.type == NAME]
    moved = 2 * sum(map(_bytes, of_gpu or given))
    if of_gpu:
        streams.program.kernel(streams.current.number, name, "adam", moved * 7 // 8)
    elif given:
        streams.program.add("adam", max(one.numel() for one in given), moved * 7 // 8)


def _tensors(value: Any) -> Iterator[Any]:
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
