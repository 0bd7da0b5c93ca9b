"""The work of one operator: a product, traffic, a copy, work of the host, or nothing but its dispatch."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from dsgen.engine.simulate import devices

__all__ = ["NAMES", "cast_on_the_host", "describe", "size"]

# Operators without a kernel that are no views.
_FREE = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh", "set_", "resize_",
     "_unsafe_view", "_reshape_alias", "detach_", "requires_grad_", "_has_compatible_shallow_copy_type"}
)  # fmt: skip
_FILLS = frozenset({"zero_", "fill_", "copy_", "normal_", "uniform_", "random_", "exponential_", "bernoulli_"})
_SORTS = {
    **dict.fromkeys(("_fused_rms_norm", "_fused_rms_norm_backward"), "norm"),
    **dict.fromkeys(("native_layer_norm", "native_layer_norm_backward", "_softmax", "_softmax_backward_data",
                     "_log_softmax", "_log_softmax_backward_data", "sum", "mean", "amax", "max", "norm",
                     "linalg_vector_norm", "_foreach_norm", "any", "all", "prod", "argmax", "logsumexp"), "reduction"),
    **dict.fromkeys(("embedding", "index_select", "gather", "index", "nll_loss_forward"), "gather"),
    **dict.fromkeys(("embedding_dense_backward", "index_add_", "index_put_", "scatter_add_"), "scatter"),
    **dict.fromkeys(("_fused_adam_", "_fused_adamw_"), "adam"),
}  # fmt: skip
_READS_A_NUMBER = frozenset({"_local_scalar_dense", "nonzero", "_unique2", "equal", "is_nonzero"})
_COPIES = (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)  # into a tensor that is there, and a new one
_SMALL_BYTES = 2**12  # of the host's tensors below which an operator is its dispatch
NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}  # of a product's dtype


class _Facts(NamedTuple):
    """What is known of an operator before its arguments: its name, whether it has a kernel, what it writes."""

    name: str
    free: bool
    writes: tuple[bool, ...]


_known: dict[Any, _Facts] = {}


def _facts(func: Any) -> _Facts:
    name = func._schema.name.partition("::")[2]
    writes = tuple(one.alias_info is not None and one.alias_info.is_write for one in func._schema.arguments)
    return _Facts(name, name in _FREE or (func.is_view and func not in _COPIES), writes)


def describe(
    func: Any, args: Any, kwargs: Any, result: Any, at: tuple[int, str, bool], is_pinned: Callable[[Any], bool]
) -> tuple[Any, ...]:
    """The entry of a program for an operator that has run.

    Args:
        func: The operator.
        args, kwargs: What it was given.
        result: What it gave.
        at: Stream, call and whether it is done again, as in `programs`.
        is_pinned: Whether a host tensor is page-locked.
    """
    facts = _known.get(func)
    if facts is None:
        facts = _known[func] = _facts(func)
    stream, call, again = at
    if facts.free:
        return "view", call
    name = facts.name
    given, made = list(_tensors((args, tuple(kwargs.values())))), list(_tensors(result))
    if not any(one.device.type == devices.NAME for one in (*given, *made)):
        moved = _moved(facts, args, kwargs, result)
        return ("host", name, moved, 0) if moved >= _SMALL_BYTES else ("view", call)
    if func in _COPIES and (copied := _copied(func, given, made)) is not None:
        source, target = copied
        asynchronous = _asynchronous(func, args, kwargs)
        to_device = target.device.type == devices.NAME
        pinned = is_pinned(source if to_device else target)
        direction = "to_device" if to_device else "to_host"
        return "copy", stream, call, direction, size(target), pinned, not (asynchronous and pinned)
    if name in _READS_A_NUMBER:
        return "item", stream
    if (product := _product(name, given)) is not None:
        return "product", stream, call, again, *product
    sort = _SORTS.get(name) or ("mixed" if _mixed((*given, *made)) else "stream")
    return "traffic", stream, call, again, name, sort, _moved(facts, args, kwargs, result)


def cast_on_the_host(func: Any, args: Any, kwargs: Any, result: Any) -> tuple[Any, int] | None:
    """The host's tensor and the bytes of the cast copy that torch makes of it before it goes to the GPU.

    A copy that the host waits for is cast where its source is, and in memory of its own
    (aten/src/ATen/native/cuda/Copy.cu, copy_kernel_cuda).
    """
    if func not in _COPIES or _asynchronous(func, args, kwargs):
        return None
    copied = _copied(func, list(_tensors((args, tuple(kwargs.values())))), list(_tensors(result)))
    if copied is None or copied[1].device.type != devices.NAME or copied[0].dtype == copied[1].dtype:
        return None
    return copied[0], int(copied[0].numel() * copied[1].element_size())


def size(tensor: Any) -> int:
    """Bytes that a kernel reads or writes of a tensor: what is only repeated is read once."""
    if 0 not in tensor.stride():
        return int(tensor.numel() * tensor.element_size())
    elements = 1
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= length if stride else min(length, 1)
    return int(elements * tensor.element_size())


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _mixed(tensors: tuple[Any, ...]) -> bool:
    """Whether an element-wise kernel casts or broadcasts; single numbers do not count."""
    kinds = {(one.dtype, one.shape) for one in tensors if one.dim()}
    return len(kinds) > 1


def _asynchronous(func: Any, args: Any, kwargs: Any) -> bool:
    return bool(kwargs.get("non_blocking") or (func is _COPIES[0] and len(args) > 2 and args[2]))


def _copied(func: Any, given: list[Any], made: list[Any]) -> tuple[Any, Any] | None:
    """Source and target where they are on two devices."""
    source, target = (given[1], given[0]) if func is _COPIES[0] else (given[0], made[0])
    return (source, target) if source.device.type != target.device.type else None


def _product(name: str, given: list[Any]) -> tuple[int, int, int, int, str] | None:
    """Rows, columns, reduced side, batch and dtype."""
    if name in ("mm", "_scaled_mm"):
        one, other = given[0], given[1]
    elif name in ("addmm", "bmm", "baddbmm"):
        one, other = given[-2], given[-1]
    elif name == "_grouped_mm":
        return _grouped(*given[:3])
    else:
        return None
    batch = one.shape[0] if one.dim() == 3 else 1
    return one.shape[-2], other.shape[-1], one.shape[-1], batch, NAMES.get(one.dtype, "fp32")


def _grouped(one: Any, other: Any, ends: Any) -> tuple[int, int, int, int, str]:
    """The products of experts: tokens are spread evenly over them, forward; over the reduced side in the gradient."""
    experts, dtype = ends.shape[0], NAMES.get(one.dtype, "fp32")
    if other.dim() == 3:
        return -(-one.shape[-2] // experts), other.shape[-1], one.shape[-1], experts, dtype
    return one.shape[-2], other.shape[-1], -(-one.shape[-1] // experts), experts, dtype


def _moved(facts: _Facts, args: Any, kwargs: Any, result: Any) -> int:
    """Bytes that a kernel reads and writes."""
    outputs = list(_tensors(result))
    if facts.name in ("embedding", "index_select", "gather", "index"):  # what is picked, not what it is picked from
        return 2 * sum(map(size, outputs))
    if facts.name in ("nll_loss_forward", "nll_loss_backward"):  # one number of each row is read
        return sum(map(size, outputs))
    moved, seen = 0, set()
    for index, value in enumerate((*args, *kwargs.values())):
        written = index < len(args) and facts.writes[index]
        for tensor in _tensors(value):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                moved += size(tensor) * (2 if written and facts.name not in _FILLS else 1)
    return moved + sum(size(one) for one in outputs if id(one) not in seen)
