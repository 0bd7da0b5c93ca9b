"""A process group of any size in one process: every other rank is a twin of this one, and says what this one says.

torch's own fake group moves no data, so that gathered weights are whatever memory held. Here a sum is this rank's
tensor times the size of the group, a gather is as many copies of this rank's part, and a scatter is the part that is
this rank's. Numbers stay finite and of the size that they have in a real run, flags of all ranks agree, averages of
gradients are right as they are where all ranks see one batch; gathered weights are the same part over and over, so no
loss means anything at stage 3 or under tensor parallelism.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future
from torch.futures import Future

__all__ = ["NAME", "Twins", "join"]

NAME = "twins"
_SCALED = (dist.ReduceOp.SUM,)  # twins leave every other reduction as it is: average, maximum, minimum, and


def _done(result: Any) -> Any:
    """Work that is already finished."""
    future: Future[Any] = Future()
    future.set_result(result)
    return _create_work_from_future(future)


def _is_sum(opts: Any) -> bool:
    return opts is None or any(opts.reduceOp == one for one in _SCALED)


class Twins(dist.ProcessGroup):  # type: ignore[misc]
    """The group as torch calls it; names and signatures are those of torch's `ProcessGroup`."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._rank, self._size = rank, size

    def size(self) -> int:
        """Ranks of the group."""
        return self._size

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """The backend's name."""
        return NAME

    @property
    def pg_name(self) -> str:
        """The name under which torch keeps the group."""
        return str(dist.distributed_c10d._world.pg_names[self])

    @property
    def group_name(self) -> str:
        """The same."""
        return self.pg_name

    def allreduce(self, tensors: Sequence[Any], opts: Any = None) -> Any:
        """The sum of twins is a multiple; any other reduction of them changes nothing."""
        for tensor in tensors if _is_sum(opts) else ():
            tensor.detach().mul_(self._size)
        return _done(tensors)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Sequence[Any], opts: Any = None) -> Any:
        """As `allreduce`, whichever rank is to have it."""
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: Sequence[Any], opts: Any = None) -> Any:
        """A twin has the same already."""
        return _done(tensors)

    def barrier(self, opts: Any = None) -> Any:
        """All are here."""
        return _done(None)

    def allgather(self, outputs: Sequence[Sequence[Any]], inputs: Sequence[Any], opts: Any = None) -> Any:
        """As many copies as there are ranks."""
        for parts, own in zip(outputs, inputs, strict=True):
            copied = own.detach().clone()  # it may be a part of the output
            for part in parts:
                part.detach().copy_(copied)
        return _done(outputs)

    def gather(self, outputs: Sequence[Sequence[Any]], inputs: Sequence[Any], opts: Any = None) -> Any:
        """As `allgather`; only the root has outputs."""
        return self.allgather(outputs, inputs) if outputs else _done(outputs)

    def all_gather_single(self, output: Any, own: Any, opts: Any = None) -> Any:
        """The same into one tensor."""
        output.detach().reshape(self._size, -1).copy_(own.detach().reshape(1, -1).clone())
        return _done(output)

    def all_gather_single_coalesced(self, outputs: Sequence[Any], inputs: Sequence[Any], opts: Any = None) -> Any:
        """The same of several."""
        for output, own in zip(outputs, inputs, strict=True):
            self.all_gather_single(output, own)
        return _done(outputs)

    def reduce_scatter(self, outputs: Sequence[Any], inputs: Sequence[Sequence[Any]], opts: Any = None) -> Any:
        """This rank's part, summed over twins."""
        for output, parts in zip(outputs, inputs, strict=True):
            output.detach().copy_(parts[self._rank].detach().clone())
        return self.allreduce(outputs, opts)

    def reduce_scatter_single(self, output: Any, whole: Any, opts: Any = None) -> Any:
        """The same of one tensor."""
        output.detach().reshape(-1).copy_(whole.detach().reshape(self._size, -1)[self._rank].clone())
        return self.allreduce([output], opts)

    def reduce_scatter_single_coalesced(self, outputs: Sequence[Any], wholes: Sequence[Any], opts: Any = None) -> Any:
        """The same of several."""
        for output, whole in zip(outputs, wholes, strict=True):
            self.reduce_scatter_single(output, whole, opts)
        return _done(outputs)

    def all_to_all_single(
        self, output: Any, own: Any, output_sizes: Any = None, input_sizes: Any = None, opts: Any = None
    ) -> Any:
        """Each twin sends the part that this rank would send to itself."""
        if output_sizes or input_sizes:
            raise NotImplementedError("parts of unequal sizes")
        output.detach().reshape(self._size, -1).copy_(
            own.detach().reshape(self._size, -1)[self._rank].reshape(1, -1).clone()
        )
        return _done(output)

    # The names of releases of torch before 2.13.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single


def join(rank: int, size: int) -> None:
    """Make this process one rank of a world of twins.

    Args:
        rank: 0-based.
        size: Ranks of the world.
    """
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, lambda store, rank, size, timeout: Twins(rank, size), devices=["cpu"])
    dist.init_process_group(NAME, store=dist.HashStore(), rank=rank, world_size=size)
