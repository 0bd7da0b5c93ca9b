"""What a program must know besides operators: who waits for which collective, and where ZeRO-3's hooks begin and end.

Put in place only where a run's time is asked for; nothing that a run allocates changes by it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch

from dsgen.engine.simulate.devices import streams
from dsgen.engine.simulate.programs import Program

__all__ = ["watch"]

# Methods of torch.distributed.ProcessGroup that queue a collective; a release has some of them.
_COLLECTIVES = (
    "all_gather_single", "all_gather_single_coalesced", "_allgather_base", "allgather", "allgather_coalesced",
    "allgather_into_tensor_coalesced", "reduce_scatter_single", "reduce_scatter_single_coalesced",
    "_reduce_scatter_base", "reduce_scatter", "reduce_scatter_tensor_coalesced", "allreduce", "allreduce_coalesced",
    "all_to_all_single", "alltoall", "alltoall_base", "broadcast", "reduce", "gather", "scatter", "send", "recv",
    "barrier", "_end_coalescing",
)  # fmt: skip
_HOOKS = ("fetch_sub_module", "release_sub_module")


def watch() -> None:
    """Note waits and hooks from now on, while a program is written; once a process."""
    works: dict[int, tuple[Any, int]] = {}  # id of a work -> weak reference to it, and its slot
    group = torch.distributed.ProcessGroup
    for name in _COLLECTIVES:
        if hasattr(group, name):
            setattr(group, name, _queued(getattr(group, name), works))
    bindings: Any = torch._C._distributed_c10d
    for kind in (torch.distributed.Work, bindings.FakeWork):
        kind.wait = _waited(kind.wait, works)
    _hooks()


def _queued(plain: Callable[..., Any], works: dict[int, tuple[Any, int]]) -> Callable[..., Any]:
    """A method that ties the work it returns to the collective that it has queued."""

    @functools.wraps(plain)
    def queued(*args: Any, **kwargs: Any) -> Any:
        program: Program | None = streams.program
        work = plain(*args, **kwargs)
        if program is None or program.newest < 0:
            return work
        slot, program.newest = program.newest, -1
        if work is None:
            program.release(slot)
            return work
        key = id(work)

        def gone(_: Any) -> None:
            works.pop(key, None)
            program.release(slot)

        works[key] = (weakref.ref(work, gone), slot)
        return work

    return queued


def _waited(plain: Callable[..., Any], works: dict[int, tuple[Any, int]]) -> Callable[..., Any]:
    """`Work.wait`: the current stream waits, the host does not."""

    @functools.wraps(plain)
    def waited(self: Any, *args: Any, **kwargs: Any) -> Any:
        known = works.get(id(self))
        if streams.program is not None and known is not None:
            streams.program.add("join", known[1], streams.current.number)
        return plain(self, *args, **kwargs)

    return waited


def _hooks() -> None:
    """ZeRO-3's hooks of a module: what they dispatch is in what they cost the host."""
    from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator, iter_params

    for name in _HOOKS:
        plain = getattr(PartitionedParameterCoordinator, name)
        setattr(PartitionedParameterCoordinator, name, _hooked(plain, iter_params, name == "fetch_sub_module"))


def _hooked(plain: Callable[..., Any], parameters: Callable[..., Any], paid: bool) -> Callable[..., Any]:
    @functools.wraps(plain)
    def hooked(self: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        program: Program | None = streams.program
        if program is None:
            return plain(self, module, *args, **kwargs)
        if paid and next(iter(parameters(module)), None) is not None:
            program.add("hook")
        program.inside += 1
        try:
            return plain(self, module, *args, **kwargs)
        finally:
            program.inside -= 1

    return hooked
