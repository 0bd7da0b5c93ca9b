"""What the operators of a real model do: every one that torch dispatches on the virtual GPU, forward and backward.

Needs dsgen[simulate]. The model is built as a simulation builds it, and run without DeepSpeed's engine: what is seen is
the model's own.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dsgen.engine.simulate import attention, devices, models, quantized, requests, runs
from dsgen.engine.simulate.ledger import Ledger
from dsgen.engine.simulate.recorder import Recorder

__all__ = ["seen"]

UNSEEN = {"detach", "device"}  # what torch asks of a tensor only where Python watches it
NOTHING = ("empty", "new_empty", "_local_scalar", "set_", "resize_")  # launches no kernel
FILLED = ("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
FILLS = (*FILLED, "fill_", "zero_", "arange", "scalar_tensor")
REDUCED = ("mean", "sum", "max", "min", "amax", "topk", "sort", "argsort", "cumsum", "any", "all", "histc")
SORTS = {  # all others go through one element after the other
    "copy": (*FILLS, "clone", "copy_", "cat", "stack", "constant_pad_nd"),
    "norm": (*REDUCED, "native_layer_norm", "native_layer_norm_backward"),
    "softmax": ("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"),
    "embedding": ("gather", "scatter", "scatter_", "index_add_", "scatter_add_"),
}
PRODUCTS = {"mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1, "_grouped_mm": 0}  # where the first matrix stands


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)


def _bytes(tensor: Any) -> int:
    """Of what a kernel reads: a tensor that repeats its elements has fewer."""
    elements = 1
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= length if stride else 1
    return int(elements * tensor.element_size())


class Watch(TorchDispatchMode):  # type: ignore[misc]
    """Adds up what passes.

    Attributes:
        phase: The phase that counts now; None between them.
        silent: What passes is inside of something that counts as one.
        kernels: Phase -> (kind, what) -> how often; `what` of traffic is (sort, bytes).
        operators, views: Phase -> how many.
        named: (phase, operator, bytes) -> how many, to look for what differs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.phase: str | None = None
        self.silent = False
        self.kernels: dict[str, Counter[tuple[str, tuple[Any, ...]]]] = {"forward": Counter(), "backward": Counter()}
        self.operators: Counter[str] = Counter()
        self.views: Counter[str] = Counter()
        self.named: Counter[tuple[str, str, int]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.__name__.partition(".")[0]
        if self.phase is None or self.silent or name in UNSEEN:
            return result
        given = [one for one in _tensors((args, tuple((kwargs or {}).values()))) if one.device.type == devices.NAME]
        made = [one for one in _tensors(result) if one.device.type == devices.NAME]
        if given or made:
            self._count(func, name, given, made)
        return result

    def _count(self, func: Any, name: str, given: list[Any], made: list[Any]) -> None:
        if func.is_view or name == "_unsafe_view":
            self.views[self.phase] += 1
            self.named[self.phase, name, 0] += 1
            return
        self.operators[self.phase] += 1
        if name in PRODUCTS:
            self._add("products", _product(name, *given[PRODUCTS[name] :]))
            return
        if name.startswith(NOTHING):
            return
        for sort, moved in _traffic(name, given, made):
            self._add("traffic", (sort, moved))
            self.named[self.phase, name, moved] += 1

    def _add(self, kind: str, what: tuple[Any, ...]) -> None:
        self.kernels[self.phase][kind, what] += 1

    def one(self, kind: str, what: tuple[Any, ...]) -> None:
        """Count something that is one operator."""
        if self.phase is not None:
            self.operators[self.phase] += 1
            self._add(kind, what)


def _product(name: str, one: Any, other: Any, offsets: Any = None) -> tuple[Any, ...]:
    """(m, n, k, batch, bytes of an element, groups)."""
    item = one.element_size()
    if name == "_grouped_mm":  # rows of the first are divided, or what is summed over
        return (one.shape[0], other.shape[-1], one.shape[1], 1, item, offsets.numel())
    batch = one.shape[0] if one.dim() == 3 else 1
    return (one.shape[-2], other.shape[-1], one.shape[-1], batch, item, 1)


def _traffic(name: str, given: list[Any], made: list[Any]) -> list[tuple[str, int]]:
    """(sort, bytes) of every kernel of an operator."""
    written = sum(_bytes(one) for one in made)
    if name in FILLS:
        return [("copy", written)]
    if name in ("slice_backward", "select_backward"):  # zeros, and a copy into them
        return [("copy", written), ("copy", 2 * _bytes(given[0]))]
    if name in ("embedding", "index", "gather", "index_select"):
        return [("embedding", 2 * written + (_bytes(given[1]) if name != "embedding" else 0))]
    if name in ("index_put", "index_put_", "_index_put_impl_"):
        first = [("copy", _bytes(given[0]) + written)] if name == "index_put" else []
        return [*first, ("embedding", 2 * _bytes(given[-1]))]
    if name == "embedding_dense_backward":
        return [("embedding", _bytes(given[0]) + written)]
    if name == "copy_":
        return [("copy", _bytes(given[0]) + _bytes(given[-1]))]
    if name == "nll_loss_forward":
        return [("norm", given[0].shape[0] * given[0].element_size())]
    if name == "nll_loss_backward":
        return [("copy", written)]
    read = {(one.untyped_storage()._cdata, one.storage_offset(), tuple(one.shape)): _bytes(one) for one in given}
    sort = next((sort for sort, names in SORTS.items() if name in names), "stream")
    return [(sort, sum(read.values()) + written)]


def _watch_attention(watch: Watch) -> None:
    kernel = attention._FlashAttention
    plain, plain_backward = kernel.forward, kernel.backward

    def count(phase: str, query: Any, key: Any) -> None:
        batch, tokens, heads, size = query.shape
        watch.one("attentions", (phase, batch, heads, key.shape[2], tokens, key.shape[1], size, query.element_size()))

    def forward(ctx: Any, query: Any, key: Any, value: Any, *sees: Any) -> Any:
        found = _silently(watch, plain, ctx, query, key, value, *sees)
        count("forward", query, key)
        return found

    def backward(ctx: Any, *gradients: Any) -> Any:
        found = _silently(watch, plain_backward, ctx, *gradients)
        count("backward", *found[:2])  # they have the shapes of queries and keys; what is saved can be asked for once
        return found

    kernel.forward, kernel.backward = staticmethod(forward), staticmethod(backward)


def _silently(watch: Watch, function: Any, *args: Any) -> Any:
    watch.silent = True
    try:
        return function(*args)
    finally:
        watch.silent = False


def _watch_weights_of_4_bits(watch: Watch) -> None:
    plain = quantized.Linear4bit.dequantized

    def dequantized(self: Any) -> Any:
        found = _silently(watch, plain, self)
        scales = 4 * self.absmax.numel()
        watch.one("traffic", ("stream", scales))
        watch.one("traffic", ("dequantization", self.weight.numel() + scales + _bytes(found)))
        return found

    quantized.Linear4bit.dequantized = dequantized


def seen(request: dict[str, Any]) -> Watch:
    """What a model does in one micro-batch; the request is one of dsgen.engine.simulate."""
    asked = requests.filled(request)
    watch, recorder = Watch(), Recorder(Ledger(), {})
    runs._world(asked, recorder)
    _watch_attention(watch)
    _watch_weights_of_4_bits(watch)
    with devices.fake_mode(), recorder:
        model = models.build(asked, asked["config"])
        model = model.to(getattr(torch, asked["dtype"])).to(devices.NAME)
        calls: Counter[str] = Counter()
        for name, module in model.named_modules():
            module.register_forward_pre_hook(functools.partial(_called, watch, calls, name))
        tokens, labels = runs._tokens(asked, asked["config"]["train_micro_batch_size_per_gpu"], 1)
        with watch:
            watch.phase = "forward"
            loss = model(input_ids=tokens, labels=labels).loss
            watch.phase = "backward"
            loss.backward()
            watch.phase = None
    watch.calls = calls
    return watch


def _called(watch: Watch, calls: Counter[str], name: str, *_: Any) -> None:
    if watch.phase == "forward":
        calls[name] += 1
