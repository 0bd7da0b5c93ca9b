"""Operators on fake tensors, answered in a fraction of the time that torch's own fake mode takes for the same answer.

That mode makes a key of seventeen facts for every tensor, and a tensor from scratch for every view. Here a view is cut
by the operator's own meta kernel, an operator that changes its argument gives it back, and one that makes a tensor is
asked once for every kind of arguments. Whatever is not surely one of these goes torch's own way.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["VIEWS", "Fakes"]

_aten = torch.ops.aten

# Operators whose result is their first argument's storage, whatever the arguments are.
VIEWS = frozenset(
    {
        _aten._unsafe_view.default,
        _aten.alias.default,
        _aten.detach.default,
        _aten.expand.default,
        _aten.slice.Tensor,
        _aten.t.default,
        _aten.transpose.int,
        _aten.unsqueeze.default,
        _aten.view.default,
        _aten.view.dtype,
    }
)

# Types of arguments that stand for themselves; 1, 1.0 and True are equal but give different results.
_PLAIN = frozenset({type(None), bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format})
_UNSURE = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view)
_SAME = "its first argument"
_ASK = "ask torch"


class Fakes:
    """Answers for one fake mode; use it inside `__torch_dispatch__`, where no mode but the fake one is active."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}  # func and kinds of arguments -> (shape, stride, dtype, device), _SAME or _ASK
        self._sure: dict[Any, bool] = {}
        self._attributes: dict[str, Any] = {}  # of a fake tensor without values, but its device
        self._mode: Any = None

    def view(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of one of VIEWS."""
        one = args[0]
        if kwargs or self._mode is None or type(one) is not FakeTensor or one.constant is not None:
            return func(*args, **kwargs)
        return self._fake(self._on_meta(func, *args), one._fake_device)

    def _on_meta(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """A meta tensor made by an operator, as the fake mode calls its kernels."""
        mode = self._mode
        with torch._C._DisableTorchDispatch():
            mode.in_kernel_invocation = True
            with torch._C._PreserveDispatchKeyGuard():
                torch._C._set_meta_in_tls_dispatch_include(True)
                try:
                    return func(*args, **kwargs)
                finally:
                    mode.in_kernel_invocation = False

    def answer(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of any other operator."""
        sure = self._sure.get(func)
        if sure is None:
            sure = self._sure[func] = _is_sure(func)
        kinds: list[Any] = [func, torch.get_default_dtype()]
        if not (sure and _flatten(args, kinds) and (not kwargs or _flatten(tuple(kwargs.items()), kinds))):
            return func(*args, **kwargs)
        key = tuple(kinds)
        known = self._known.get(key)
        if known is None:
            result = func(*args, **kwargs)
            self._known[key] = self._learned(func, args, kwargs, result)
            return result
        if known is _SAME:
            return args[0]
        return func(*args, **kwargs) if known is _ASK else self._new(known)

    def _learned(self, func: Any, args: Any, kwargs: Any, result: Any) -> Any:
        """What is known from now on of the result for such arguments."""
        if type(result) is not FakeTensor or result.constant is not None:
            return _ASK
        if args and result is args[0]:
            return _SAME
        if self._mode is None:
            self._mode = result.fake_mode
            self._attributes = {name: value for name, value in vars(result).items() if name != "_fake_device"}
        storage = result.untyped_storage()
        shared = {one.untyped_storage()._cdata for one in _tensors((args, tuple(kwargs.values())))}
        recipe = (tuple(result.shape), tuple(result.stride()), result.dtype, result._fake_device)
        plain = result.layout is torch.strided and not result.dtype.is_complex and not result.is_neg()
        if func._schema.is_mutable or storage._cdata in shared or not plain or result.storage_offset():
            return _ASK
        made = self._new(recipe)
        alike = (
            made.untyped_storage().nbytes() == storage.nbytes()
            and torch._C._dispatch_key_set(made) == torch._C._dispatch_key_set(result)
            and vars(made) == vars(result)
        )
        return recipe if alike else _ASK

    def _new(self, recipe: Any) -> Any:
        """A tensor with a storage of its own."""
        shape, stride, dtype, device = recipe
        made = self._on_meta(torch.empty_strided, shape, stride, dtype=dtype, device="meta")
        return self._fake(made, device)

    def _fake(self, made: Any, device: Any) -> Any:
        """A meta tensor as a fake one on a device; as FakeTensor.__new__ makes it."""
        fake = torch.Tensor._make_subclass(
            FakeTensor, made, False, dispatch_device=True, device_for_backend_keys=device
        )
        torch._C._set_warn_deprecated_on_mutable_data_ptr(fake)  # DeepSpeed asks how it is aligned
        attributes = fake.__dict__
        attributes.update(self._attributes)
        attributes["_fake_device"] = device
        return fake


def _is_sure(func: Any) -> bool:
    """Whether the kinds of an operator's arguments say what its result is like, as torch's own cache asks."""
    return (
        isinstance(func, torch._ops.OpOverload)
        and func.namespace == "aten"
        and not func.is_view
        and not any(tag in func.tags for tag in _UNSURE)
        and "lift" not in func.name()
    )


def _flatten(values: Any, kinds: list[Any]) -> bool:
    """Append the kinds of some arguments; False where one is not surely known by its kind."""
    for value in values:
        kind = type(value)
        if kind is FakeTensor:
            if value.constant is not None or value.layout is not torch.strided or value.is_neg():
                return False
            kinds.append((value.dtype, value.shape, value.stride(), value._fake_device))
        elif kind in _PLAIN:
            kinds.append(kind)
            kinds.append(value)
        elif kind is list or kind is tuple or kind is torch.Size:
            kinds.append(len(value))
            if not _flatten(value, kinds):
                return False
        else:
            return False
    return True


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [one for item in value for one in _tensors(item)] if isinstance(value, (list, tuple)) else []
