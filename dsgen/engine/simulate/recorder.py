"""The recorder: sees every operator that torch runs, and writes every new storage and every collective down."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dsgen.engine.simulate import devices, fakes, kinds, passes, watching, works
from dsgen.engine.simulate.ledger import GPU, HOST, Ledger
from dsgen.engine.simulate.programs import ENGINE, HOOK, PYTHON, Program

__all__ = ["Recorder"]

_PLACES = {devices.NAME: GPU, "cpu": HOST}  # tensors on "meta" hold nothing

# Operators that ask for a handle of cuBLAS.
_PRODUCTS = frozenset(
    getattr(getattr(torch.ops.aten, name), way)
    for name in ("mm", "addmm", "bmm", "baddbmm")
    for way in ("default", "out")
)
_DEVICE = torch.ops.prim.device.default
_SAFE_SOFTMAX = torch.ops.aten._safe_softmax.default
_DETACH = torch.ops.aten.detach.default  # torch's engine asks for it where Python watches; else it copies a pointer


class _Watch(weakref.ref):  # type: ignore[type-arg]
    """A weak reference to a storage that knows its number."""

    __slots__ = ("key", "number")
    key: int
    number: int


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Fills a ledger while it is active; put it on top of FakeTensorMode.

    A storage is counted with the bytes of its tensors, unrounded, from the operator that made it until the last
    reference to it is gone, as Python's and C++'s reference counts say: just when CUDA's allocator gets it back.

    Attributes:
        vocabularies: Sizes of the last dimension that mark logits.
        head_shape: Shape of the weight that makes the logits.
        phase: The phase that is running.
        step: The optimizer step that is running, from 1; 0 before the first.
        live: Bytes alive now, by place.
        program: What the host does in the last step; None where nobody asks for its time.
        modules: Whose work that is.
        collectives: (step, phase, kind, ranks, bytes) -> how often.
    """

    def __init__(self, ledger: Ledger, progress: dict[str, str], *, timed: bool = False, node: int = 1) -> None:
        """A recorder of one run.

        Args:
            ledger: Gets what is born and dies.
            progress: Gets the phase that is running.
            timed: Keep the program of the last step.
            node: Ranks of a full node.
        """
        super().__init__()
        self.ledger, self._progress = ledger, progress
        self.program = Program() if timed else None
        self.modules = watching.RunningModules()
        self._node, self._pass_begins = node, 0
        self.vocabularies: frozenset[int] = frozenset()
        self.head_shape: tuple[int, ...] = ()
        self.step = 0
        self.enter("load")
        self.collectives: dict[tuple[int, str, str, int, int], int] = {}
        self._before_pass: dict[tuple[int, str, str, int, int], int] = {}
        self.live = [0, 0]
        self.written: dict[str, int] = {}  # file of a checkpoint -> bytes of its storages
        self._watched: dict[int, _Watch] = {}
        self._pin = False
        self._fakes = fakes.Fakes()
        self._sites: dict[Any, tuple[str, str | None, bool]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled: no wrapper around every operator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _SAFE_SOFTMAX:
            return self._safe_softmax(types, *args)
        if func is _DEVICE:  # more than half of all calls: torch's engine asks for it from C++
            return args[0].device
        kwargs = kwargs or {}
        program = devices.streams.program
        if program is not None:
            self.modules.now(program)
        if func in fakes.VIEWS:
            if program is not None and func is not _DETACH:
                program.add("view", HOOK if program.inside else PYTHON)
            return self._fakes.view(func, args, kwargs)
        result = self._fakes.answer(func, args, kwargs)
        if func.namespace == "c10d":
            self._note_collective(func, args, program)
        extra = kinds.HIDDEN.get(func)
        if extra is not None:
            self._note_hidden(func, args[0], extra(args))
        if isinstance(result, torch.Tensor):
            self._note(func, result)
        elif isinstance(result, (tuple, list)):
            for item in result:
                if isinstance(item, torch.Tensor):
                    self._note(func, item)
                elif isinstance(item, (tuple, list)):
                    for inner in item:
                        if isinstance(inner, torch.Tensor):
                            self._note(func, inner)
        if func in _PRODUCTS and args[0].device.type == devices.NAME:
            self.ledger.multiplied(self.phase == "backward", devices.streams.current.number)
        if func.namespace == "aten" and (cast := works.cast_on_the_host(func, args, kwargs, result)) is not None:
            source, new = cast
            self._note_hidden(func, source, new)
            if program is not None:
                program.add("host", "cast", works.size(source) + new, new)
        if program is not None and func.namespace != "c10d":
            program.add(*works.describe(func, args, kwargs, result, self._at(program), self.is_pinned))
        return result

    def _safe_softmax(self, types: Any, scores: Any, dim: int, *_: Any) -> Any:
        """One operator to whoever watches, and four on a GPU (ATen/native/SoftMax.cpp): rows that see nothing are 0."""
        aten = torch.ops.aten
        weights = self.__torch_dispatch__(aten._softmax.default, types, (scores, dim, False))
        nothing = self.__torch_dispatch__(aten.isneginf.default, types, (scores,))
        rows = self.__torch_dispatch__(aten.all.dim, types, (nothing, dim, True))
        kind = {"dtype": scores.dtype, "device": scores.device}
        zero = self.__torch_dispatch__(aten.scalar_tensor.default, types, (0.0,), kind)
        return self.__torch_dispatch__(aten.where.self, types, (rows, zero, weights))

    def _at(self, program: Program) -> tuple[int, str, bool]:
        """Where an operator runs: its stream, who calls it, and whether backward does it again."""
        stream, backward = devices.streams.current.number, self.phase == "backward"
        if program.inside:
            return stream, HOOK, False
        if not backward:
            return stream, PYTHON, False
        frame: Any = sys._getframe(1).f_back  # None below an operator that torch's engine calls itself
        if frame is None:
            return stream, ENGINE, False
        while frame is not None:
            if self._site(frame.f_code)[2]:
                return stream, PYTHON, True  # the model's own code runs in backward
            frame = frame.f_back
        return stream, PYTHON, False

    def _site(self, code: Any) -> tuple[str, str | None, bool]:
        known = self._sites.get(code)
        if known is None:
            known = self._sites[code] = kinds.site(code.co_filename, code.co_name)
        return known

    def _note(self, func: Any, tensor: Any) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._watched:
            return
        place = _PLACES.get(tensor.device.type)
        if place is None:
            return
        size = storage.nbytes()
        kind, site = self._classify(tensor, place)
        stream = devices.streams.current.number if place == GPU else 0
        description = (str(func), site, str(tensor.dtype).removeprefix("torch."), str(tuple(tensor.shape)))
        number = self.ledger.born(size, place, kind, stream, description)
        if self._pin and place == HOST:
            self.ledger.pinned.add(number)
        self.live[place] += size
        if place == GPU and devices.streams.program is not None:
            devices.streams.program.hold(self.live[GPU])
        watch = _Watch(storage, self._forget)
        watch.key, watch.number = key, number
        self._watched[key] = watch

    def _forget(self, watch: _Watch) -> None:
        del self._watched[watch.key]
        self.live[self.ledger.places[watch.number]] -= self.ledger.sizes[watch.number]
        self.ledger.died(watch.number)

    def _note_hidden(self, func: Any, argument: Any, tensor_bytes: int) -> None:
        """What a kernel allocates for itself where its argument is, and frees before it returns."""
        place = _PLACES.get(argument.device.type)
        if place is None:
            return
        number = self.ledger.born(tensor_bytes, place, "temporaries", 0, (str(func), "inside the kernel", "", ""))
        self.ledger.died(number)

    def _classify(self, tensor: Any, place: int) -> tuple[str, str]:
        """What a new storage is for, by who makes it: the nearest frame that is known, else the phase."""
        frame: Any = sys._getframe(2).f_back  # None below an operator that torch's engine calls itself
        where, inside = "", False
        while frame is not None:
            name, kind, model = self._site(frame.f_code)
            if name and not where:
                where = f"{name}:{frame.f_lineno}"
            if kind is not None:  # a single number is a norm or a scale on the way, not what the function is there for
                return kind if tensor.dim() else "temporaries", where
            inside = inside or model
            frame = frame.f_back
        return self._by_phase(tensor, inside), where

    def _by_phase(self, tensor: Any, inside: bool) -> str:
        """What a storage is for that no known function makes; `inside` is whether the model's own code runs."""
        shape = tensor.shape
        if self.phase in ("forward", "backward", "evaluate") and len(shape) > 1 and shape[-1] in self.vocabularies:
            return "logits and loss"
        if self.phase == "backward":
            if inside:
                return "activations"  # recomputed
            # The two gradients of tied embeddings are summed before any hook sees them.
            return "gradients" if tuple(shape) == self.head_shape else "temporaries"
        kind = kinds.BY_PHASE[self.phase]
        return kind if tensor.dim() or kind != "weights" else "temporaries"  # a single number is on the way to one

    def _note_collective(self, func: Any, args: Any, program: Program | None) -> None:
        kind = kinds.collective(func.__name__)
        if kind is None:
            return
        ranks, inside = 0, 0
        for argument in args:
            if isinstance(argument, torch.ScriptObject):
                try:
                    group = torch.distributed.ProcessGroup.unbox(argument)
                    ranks = group.size()
                    inside = _in_a_node(group, self._node) if program is not None else 0
                except (RuntimeError, TypeError):  # a reduce operation, not a group
                    continue
        moved = max(_bytes(argument) for argument in args)
        key = (self.step, self.phase, kind, ranks, moved)
        self.collectives[key] = self.collectives.get(key, 0) + 1
        if program is not None:
            call = HOOK if program.inside else PYTHON
            program.collective(devices.streams.current.number, call, kind, moved, ranks, inside)

    def enter(self, phase: str, micro_batch: int = 0) -> None:
        """Note that a phase begins."""
        self.phase = self._progress["phase"] = phase
        devices.streams.note("phase", phase, micro_batch)

    def start(self) -> passes.Start:
        """Note that a pass of accumulation begins."""
        self._before_pass = dict(self.collectives)
        self._pass_begins = len(self.program) if self.program is not None else 0
        return passes.Start(self.ledger)

    def repeat(self, before: passes.Start, last: passes.Start, count: int) -> bool:
        """Write the pass that ends now down `count` times more, if it did what the one before it did.

        Args:
            before: Where the one before it began.
            last: Where it began itself.
            count: How many passes more.
        """
        if not passes.alike(self.ledger, before, last):
            return False
        shift = passes.repeat(self.ledger, before, last, count)
        for watch in self._watched.values():
            if watch.number >= last.storages:
                watch.number += shift
        for key, done in self.collectives.items():
            self.collectives[key] = done + count * (done - self._before_pass.get(key, 0))
        if devices.streams.program is not None:
            devices.streams.program.repeat(self._pass_begins, count)
        return True

    def claim(self, tensor: Any, kind: str) -> None:
        """Say what a tensor's storage is for; nothing happens where it is not counted."""
        number = self.number(tensor)
        if number is not None:
            self.ledger.rename(number, kind)

    def number(self, tensor: Any) -> int | None:
        """The ledger's number of a tensor's storage; None where it is not counted."""
        watch = self._watched.get(tensor.untyped_storage()._cdata)
        return None if watch is None else watch.number

    def pin(self, tensor: Any, shape: Any) -> Any:
        """A page-locked host tensor of a shape, with the type of another."""
        self._pin = True
        try:
            return torch.empty(shape, dtype=tensor.dtype, device="cpu")
        finally:
            self._pin = False

    def is_pinned(self, tensor: Any) -> bool:
        """Whether a tensor's storage is page-locked."""
        return self.number(tensor) in self.ledger.pinned


def _in_a_node(group: Any, node: int) -> int:
    """Ranks of a group that share the node of its first."""
    ranks = torch.distributed.get_process_group_ranks(group)
    return sum(1 for rank in ranks if rank // node == ranks[0] // node)


def _bytes(argument: Any) -> int:
    if isinstance(argument, torch.Tensor):
        return int(argument.numel() * argument.element_size())
    if isinstance(argument, (list, tuple)):
        return sum(_bytes(item) for item in argument)
    return 0
