"""Functions of DeepSpeed whose time grows with the world's size, in a form that takes the same memory in less time.

Each cuts a flat buffer into one view for every rank. Views hold no memory, and what a buffer holds has no values here,
so one view stands for all. `tests/engine/test_simulate_exact.py` compares the peaks with those of DeepSpeed's own.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch

from dsgen.engine.simulate.devices import streams

__all__ = ["apply", "reduce_scatter_coalesced", "wait"]


def apply() -> None:
    """Put the shortcuts in place; once a process."""
    from deepspeed.runtime.comm import coalesced_collectives
    from deepspeed.runtime.zero import partition_parameters, stage3

    coalesced_collectives.reduce_scatter_coalesced = reduce_scatter_coalesced
    stage3.reduce_scatter_coalesced = reduce_scatter_coalesced
    partition_parameters.AllGatherCoalescedHandle.wait = wait
    _narrow_once()


def _narrow_once() -> None:
    """`_all_gather_dtype` of zero.Init cuts its buffer into a view for every rank: the first is handed out again."""
    from torch._subclasses.fake_tensor import FakeTensor

    plain = torch.Tensor.narrow
    views: dict[int, Any] = {}  # id of a buffer -> weak reference to its first view, which keeps the buffer alive

    def narrow(self: Any, dim: int, start: int, length: int) -> Any:
        if sys._getframe(1).f_code.co_name != "_all_gather_dtype":
            return plain(self, dim, start, length)
        known = views.get(id(self))
        view = None if known is None else known()
        if view is None or view.numel() != length or view.untyped_storage()._cdata != self.untyped_storage()._cdata:
            view = plain(self, dim, start, length)
            views[id(self)] = weakref.ref(view)
        return view

    FakeTensor.narrow = narrow


def reduce_scatter_coalesced(tensors: list[Any], group: Any = None) -> list[Any]:
    """As deepspeed.runtime.comm.coalesced_collectives.reduce_scatter_coalesced, with one view instead of a list."""
    from deepspeed import comm
    from deepspeed.runtime.comm import coalesced_collectives

    world, rank = comm.get_world_size(group), comm.get_rank(group)
    chunks = [-(-tensor.numel() // world) for tensor in tensors]
    if len(tensors) == 1 and tensors[0].numel() % world == 0:
        flat = tensors[0].view(-1)
    else:
        pieces = []
        for tensor, chunk in zip(tensors, chunks, strict=True):
            pieces.append(tensor.view(-1))
            short = chunk * world - tensor.numel()
            while short > 0:  # the last ranks are padded: a part of a chunk, then whole chunks
                size = short % chunk or chunk
                pieces.append(torch.empty(size, dtype=tensor.dtype, device=tensor.device))
                short -= size
        flat = torch.cat(pieces)
        del pieces
    flat.div_(world)
    own = flat.narrow(0, rank * sum(chunks), sum(chunks))
    coalesced_collectives._torch_reduce_scatter_fn(flat, own, group=group)
    outputs, offset = [], 0
    for tensor, chunk in zip(tensors, chunks, strict=True):
        held = min(max(tensor.numel() - rank * chunk, 0), chunk)
        outputs.append(own.narrow(0, offset, held))
        offset += chunk
    return outputs


def wait(self: Any, handle_dependency: bool = True) -> None:
    """As deepspeed.runtime.zero.partition_parameters.AllGatherCoalescedHandle.wait, without a view for every rank."""
    from deepspeed.runtime.zero.partition_parameters import AllGatherCoalescedHandle, ZeroParamStatus

    if self.complete:
        return
    self.allgather_handle.wait()
    if self.quantization:
        packed = self.quantization
        packed.quant_handle.wait()
        self.partitions = [packed.backend.dequantize(packed.quantized_param, packed.scale_buffer)]
    buffer = self.partitions[0]
    for parameter in self.params:
        gathered = torch.empty(parameter.ds_numel, dtype=buffer.dtype, device=buffer.device)
        if streams.program is not None:  # torch.cat of the ranks' parts
            moved = 2 * gathered.numel() * gathered.element_size()
            streams.program.kernel(streams.current.number, "cat", "stream", moved)
        parameter.data = gathered.view(parameter.ds_shape).to(parameter.ds_tensor.dtype)
        del gathered
        parameter.ds_status = ZeroParamStatus.AVAILABLE
    self.complete = True
    if not handle_dependency:
        AllGatherCoalescedHandle.data_buffer.append([buffer])
