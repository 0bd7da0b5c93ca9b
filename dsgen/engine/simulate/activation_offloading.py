"""Activation offloading: what autograd keeps waits in the node's RAM, as TRL's `activation_offloading` moves it."""

from typing import Any, NamedTuple

import torch
from torch.autograd.graph import saved_tensors_hooks

from dsgen.engine.simulate import devices
from dsgen.engine.simulate.recorder import Recorder

__all__ = ["OffloadedActivations", "head_stays"]

# Of TRL's OffloadActivations (trl/models/activation_offloading.py of 1.16, its defaults):
LEAST_BYTES = 1024  # what is smaller stays
STASH = 5  # a copied tensor stays on the GPU until so many more were kept


class _Saved(NamedTuple):
    """A tensor that autograd keeps: it, or its copy in RAM with the shape, strides and offset that it had."""

    tensor: Any
    view: tuple[Any, Any, Any] | None


class OffloadedActivations(saved_tensors_hooks):  # type: ignore[misc]
    """Copies what autograd keeps to page-locked RAM on a stream of its own, and back when backward asks for it.

    Parameters stay, and so does what is kept twice while its first copy is under way. In backward a tensor that came
    back stays until the node behind the one that asked for it, or as long as anything refers to it.
    """

    def __init__(self, recorder: Recorder) -> None:
        """`recorder` makes page-locked tensors, and is told what comes back."""
        self._recorder = recorder
        self._stream = devices.Stream()
        # The last that asked: its graph, and so a leaf of autograd that it ends in, lives on to the next pass.
        self._node: Any = None
        self._clear()
        super().__init__(self._pack, self._unpack)

    def __enter__(self) -> None:
        self._clear()
        super().__enter__()

    def __exit__(self, *error: Any) -> None:
        try:
            devices.streams.current.synchronize()
            self._stream.synchronize()
            self._clear()
        finally:
            super().__exit__(*error)

    def _clear(self) -> None:
        self._number, self._begun = 0, False
        self._kept: dict[int, _Saved] = {}
        self._stash: dict[int, tuple[Any, Any]] = {}  # on its way to RAM: the tensor, and when it has come there
        self._keys: dict[Any, int] = {}  # storage, offset and dtype -> the number that holds it on the GPU
        self._back: dict[int, Any] = {}  # came back for a node that has not ended
        self._used: dict[int, Any] = {}  # when the node of one of these had ended

    def _pack(self, tensor: Any) -> int:
        self._number += 1
        number, storage = self._number, tensor.untyped_storage()
        key = storage._cdata, tensor.storage_offset(), tensor.dtype
        if key in self._keys:
            self._keys[key] = number
            self._kept[number] = _Saved(tensor, None)
            return number
        small = tensor.element_size() * tensor.nelement() < LEAST_BYTES
        if tensor.device.type != devices.NAME or small or isinstance(tensor, torch.nn.Parameter):
            self._kept[number] = _Saved(tensor, None)
            return number
        repeats = 0 in tensor.stride()
        if not repeats and tensor.storage_offset():
            tensor = tensor.clone(memory_format=torch.contiguous_format)
        elif not repeats:
            tensor = tensor.contiguous()
        now = devices.streams.current
        for old in [one for one in self._stash if one <= number - STASH]:
            self._let_go(old)
        self._stream.wait_stream(now)
        with devices.on_stream(self._stream):
            if repeats:  # its storage alone is copied
                source = torch.as_strided(tensor, (storage.size() // tensor.element_size(),), (1,), 0)
            else:
                source = tensor
            copy = self._recorder.pin(source, source.shape)
            copy.copy_(source, non_blocking=True)
        self._kept[number] = _Saved(copy, (tensor.size(), tensor.stride(), tensor.storage_offset()))
        self._stash[number] = tensor, self._stream.record_event()
        self._keys[key] = number
        return number

    def _let_go(self, number: int) -> None:
        """Wait until one has come to RAM, and free it on the GPU."""
        devices.streams.current.wait_event(self._stash.pop(number)[1])
        self._forget(number)

    def _forget(self, number: int) -> None:
        for key in [key for key, one in self._keys.items() if one == number]:
            del self._keys[key]

    def _unpack(self, number: int) -> Any:
        if not self._begun:
            self._begun = True
            torch.autograd.Variable._execution_engine.queue_callback(self._end)
        tensor, view = self._kept.pop(number)
        if view is not None:
            node: Any = torch._C._current_autograd_node()
            before = []
            if node != self._node:
                self._node, before = node, list(self._back)
            held = self._stash.get(number)
            references = 0
            if held is not None:
                tensor = held[0]
            else:
                tensor = self._brought(tensor, view)
                self._back[number] = tensor
                references = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
            node.register_hook(lambda outputs, _: self._after(number, references, before, outputs))
        self._forget(number)
        return tensor

    def _brought(self, copy: Any, view: tuple[Any, Any, Any]) -> Any:
        with devices.on_stream(self._stream):
            tensor = torch.as_strided(copy.to(devices.NAME, non_blocking=True), *view)
        logits = bool(tensor.dim()) and tensor.shape[-1] in self._recorder.vocabularies
        self._recorder.claim(tensor, "logits and loss" if logits else "activations")
        devices.streams.current.wait_stream(self._stream)
        return tensor

    def _after(self, number: int, references: int, before: list[int], outputs: Any) -> Any:
        """The node that asked for a tensor has ended."""
        tensor = self._back.get(number)
        if tensor is not None:
            if torch._C._storage_Use_Count(tensor.untyped_storage()._cdata) > references:
                del self._back[number]  # recorded on the stream that uses it: it lives as long as anything refers to it
            else:
                self._used[number] = devices.streams.current.record_event()
        for one in list(self._stash):
            self._let_go(one)
        for one in before:
            self._return(one)
        return outputs

    def _return(self, number: int) -> None:
        if number in self._used:
            self._stream.wait_event(self._used.pop(number))
        self._back.pop(number, None)

    def _end(self) -> None:
        for one in list(self._back):
            self._return(one)


def head_stays(model: Any) -> None:
    """What the output head keeps stays on the GPU: backward asks for it at once.

    Args:
        model: The Hugging Face model; nothing changes where it has no lm_head.
    """
    head = getattr(model, "lm_head", None)
    if head is not None:
        stays = saved_tensors_hooks(_same, _same)
        head.register_forward_pre_hook(lambda *_: stays.__enter__())
        head.register_forward_hook(lambda *_: stays.__exit__(), always_call=True)


def _same(tensor: Any) -> Any:
    return tensor
