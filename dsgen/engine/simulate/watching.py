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

__all__ = ["RunningModules", "watch"]

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


class RunningModules:
    """Which module of a model is at work: in forward the one that runs, in backward the one whose forward it undoes.

    torch numbers the nodes of the autograd graph as forward makes them, and tells in backward which node runs. What is
    recomputed in backward is numbered by another thread, from its own beginning; it is undone by a backward of its own
    inside the first (reentrant checkpointing), or not at all.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}  # id of a module -> its name
        self._running = [""]
        self._made: tuple[dict[int, str], dict[int, str]] = ({}, {})  # number of a node -> whose: first, recomputed
        self._task = -1  # torch's number of the backward that is not inside another

    def watch(self, model: Any) -> None:
        """Note the modules of a model from now on; once a process."""
        self._names = {id(module): name.removeprefix("module.") for name, module in model.named_modules()}
        torch.nn.modules.module.register_module_forward_pre_hook(self._enter)
        torch.nn.modules.module.register_module_forward_hook(self._leave, always_call=True)

    def now(self, program: Program) -> None:
        """Write down whose operator is about to be, or has just been, queued."""
        node = torch._C._current_autograd_node()
        if node is None:
            if self._task != -1:  # another pass begins, or the optimizer's step
                self._task, self._made = -1, ({}, {})
        elif self._task == -1:
            self._task = torch._C._current_graph_task_id()
        if node is not None and len(self._running) == 1:
            name = self._made[torch._C._current_graph_task_id() != self._task].get(node._sequence_nr())
            if name is not None:  # else it adds up a weight's gradient, in the module of before
                program.enter(name)
            return
        # The first that comes by made the node; what makes none, under no_grad, comes by later.
        newest = torch._C._autograd._get_sequence_nr() - 1
        self._made[node is not None].setdefault(newest, self._running[-1])
        program.enter(self._running[-1])

    def _enter(self, module: Any, _: Any) -> None:
        if streams.program is not None and _is_counted(module):
            streams.program.add("call")
        self._running.append(self._names.get(id(module), self._running[-1]))

    def _leave(self, *_: Any) -> None:
        if len(self._running) > 1:
            self._running.pop()


def _is_counted(module: Any) -> bool:
    """Whether a module holds parameters of its own, or is peft's layer about one that does."""
    return any(parameter is not None for parameter in module._parameters.values()) or hasattr(module, "base_layer")


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
