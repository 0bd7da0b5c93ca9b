"""DeepSpeed's compiled operators of Adam and of asynchronous files, in torch and Python: nothing is built for a start.

A proof on real ranks runs the operators as built. A start in a world of twins asks about sizes, groups and classes,
thousands of times, and must not wait for a compiler; weights and files change here as they do there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

__all__ = ["install"]

_locked: set[int] = set()  # addresses of the buffers that stand for page-locked ones


def install() -> None:
    """Let every builder of this process give the operator of this module; others are refused by name."""
    from deepspeed.ops.op_builder.builder import OpBuilder

    made: dict[str, Any] = {"cpu_adam": _CPUAdam(), "fused_adam": _FusedAdam(), "async_io": _PlainFiles()}

    def load(self: Any, verbose: bool = True) -> Any:
        if self.name not in made:
            raise NotImplementedError(f"a start in a world of twins has no stand-in for DeepSpeed's {self.name}")
        return made[self.name]

    for kind in (OpBuilder, *_kinds(OpBuilder)):  # async_io asks for libaio, and loads another, in methods of its own
        kind.load = load
        kind.is_compatible = lambda self, verbose=False: self.name in made


def _kinds(kind: Any) -> list[Any]:
    below: list[Any] = kind.__subclasses__()
    return [one for child in below for one in (child, *_kinds(child))]


def _adam(
    weight: Any, gradient: Any, mean: Any, square: Any, *, rate: float, betas: tuple[float, float], eps: float,
    step: int, decoupled: bool, correct: bool, decay: float,
) -> None:  # fmt: skip
    """One update of one tensor, in fp32 (Kingma and Ba, 2015; decoupled decay: Loshchilov and Hutter, 2019)."""
    weight, mean, square = (one.detach() for one in (weight, mean, square))
    slope = gradient.detach().float()
    if decay and not decoupled:
        slope = slope + decay * weight.float()
    mean.copy_(betas[0] * mean.float() + (1 - betas[0]) * slope)
    square.copy_(betas[1] * square.float() + (1 - betas[1]) * slope * slope)
    first, second = (1 - betas[0] ** step, 1 - betas[1] ** step) if correct else (1.0, 1.0)
    change = (mean.float() / first) / ((square.float() / second).sqrt() + eps)
    if decay and decoupled:
        change = change + decay * weight.float()
    weight.copy_(weight.float() - rate * change)


class _CPUAdam:
    """csrc/adam/cpu_adam.cpp, as ops/adam/cpu_adam.py calls it."""

    def __init__(self) -> None:
        self._decoupled: dict[int, bool] = {}

    def create_adam(
        self, number: int, rate: float, one: float, two: float, eps: float, decay: float, decoupled: bool, log: bool
    ) -> int:
        """Keep what a step is not told again."""
        self._decoupled[number] = decoupled
        return 0

    def destroy_adam(self, number: int) -> int:
        """Forget it."""
        self._decoupled.pop(number, None)
        return 0

    def adam_update(
        self, number: int, step: int, rate: float, one: float, two: float, eps: float, decay: float, correct: bool,
        weight: Any, gradient: Any, mean: Any, square: Any,
    ) -> int:  # fmt: skip
        """One step of one tensor."""
        decoupled = self._decoupled[number]
        _adam(weight, gradient, mean, square, rate=rate, betas=(one, two), eps=eps, step=int(step),
              decoupled=decoupled, correct=bool(correct), decay=decay)  # fmt: skip
        return 0


class _FusedAdam:
    """csrc/adam/fused_adam_frontend.cpp, as ops/adam/fused_adam.py calls it."""

    def multi_tensor_adam(
        self, chunk: int, overflow: Any, lists: Any, rate: float, one: float, two: float, eps: float, step: int,
        mode: int, correct: int, decay: float, *_: Any,
    ) -> None:  # fmt: skip
        """One step of lists of gradients, weights and moments."""
        for gradient, weight, mean, square in zip(*lists, strict=True):
            _adam(weight, gradient, mean, square, rate=rate, betas=(one, two), eps=eps, step=int(step),
                  decoupled=bool(mode), correct=bool(correct), decay=decay)  # fmt: skip


class _PlainFiles:
    """csrc/aio/py_lib: handles whose reads and writes are done when they return."""

    def aio_handle(self, *said: Any, **_: Any) -> Any:
        """A handle; arguments as py_ds_aio.cpp takes them."""
        return _PlainHandle(*said)


class _PlainHandle:
    """An aio_handle on plain files."""

    def __init__(self, block: int = 1 << 20, depth: int = 8, single: bool = False, overlap: bool = True,
                 threads: int = 1) -> None:  # fmt: skip
        self._said = (block, depth, single, overlap, threads)
        self._waiting = 0

    def get_block_size(self) -> int:
        """Bytes of one request."""
        return int(self._said[0])

    def get_queue_depth(self) -> int:
        """Requests in flight at most."""
        return int(self._said[1])

    def get_single_submit(self) -> bool:
        """As it was made."""
        return bool(self._said[2])

    def get_overlap_events(self) -> bool:
        """As it was made."""
        return bool(self._said[3])

    def get_intra_op_parallelism(self) -> int:
        """Threads that share one request; buffers are aligned to their number."""
        return int(self._said[4])

    def get_alignment(self) -> int:
        """Bytes that a buffer is aligned to."""
        return 512 * self.get_intra_op_parallelism()

    def new_cpu_locked_tensor(self, elements: int, example: Any) -> Any:
        """A host buffer of the example's type."""
        made = torch.empty(int(elements), dtype=example.dtype)
        _locked.add(made.untyped_storage().data_ptr())
        return made

    def free_cpu_locked_tensor(self, tensor: Any) -> bool:
        """It goes when its last reference does."""
        return True

    def is_pinned(self, tensor: Any) -> bool:
        """Whether it lies in a buffer of `new_cpu_locked_tensor`."""
        return tensor.untyped_storage().data_ptr() in _locked

    def async_pwrite(self, buffer: Any, path: Any, *_: Any) -> int:
        """Write a tensor's bytes."""
        self._waiting += 1
        Path(path).write_bytes(buffer.detach().contiguous().view(torch.uint8).numpy().tobytes())
        return 0

    def async_pread(self, buffer: Any, path: Any, *_: Any) -> int:
        """Read them back."""
        self._waiting += 1
        flat = buffer.detach().view(torch.uint8)
        data = bytearray(Path(path).read_bytes())
        read = torch.frombuffer(data, dtype=torch.uint8)[: flat.numel()]
        flat[: read.numel()].copy_(read)
        return 0

    def sync_pwrite(self, buffer: Any, path: Any, *_: Any) -> int:
        """Write and wait."""
        self.async_pwrite(buffer, path)
        return self.wait()

    def sync_pread(self, buffer: Any, path: Any, *_: Any) -> int:
        """Read and wait."""
        self.async_pread(buffer, path)
        return self.wait()

    def wait(self) -> int:
        """Requests that are done since the last call."""
        done, self._waiting = self._waiting, 0
        return done
