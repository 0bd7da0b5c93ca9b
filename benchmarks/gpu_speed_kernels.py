"""The kernels that `nox -s gpu-speed` measures by shape, each with what the laws of dsgen.kernels say of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dsgen
from dsgen.kernels import (
    Rates,
    attention_seconds,
    copy_seconds,
    dispatch_seconds,
    fused_kernel,
    product_seconds,
    traffic_seconds,
)
from dsgen.kernels import rates as rates_of

__all__ = ["kernel_name", "kernels", "law_seconds", "node_of"]

Kernel = dict[str, Any]

TOKENS = (512, 2048, 8192)
# (columns, reduced side) of the layers of opt-125m, llama-3.2-1b and llama-3.1-8b, and of the latter's head.
LAYERS = ((768, 768), (3072, 768), (2048, 2048), (8192, 2048), (4096, 4096), (14336, 4096), (4096, 14336))
LEAST_PRODUCT = 2**33  # multiplications: a shorter one takes less than its launch, and that would be measured
HEAD = (128256, 4096)
ADAPTERS = ((16, 4096), (4096, 16))  # of rank 16
DTYPES = ("bf16", "fp16", "fp32")
HEADS = ((12, 12, 64), (32, 8, 64), (32, 8, 128))  # query heads, key heads, width
LENGTHS = (512, 2048, 8192)
ELEMENTS = (2**24, 2**26, 2**28)
SORTS = ("stream", "reduction", "gather", "adam")
WIDTH = 4096  # of a row that is normed or looked up
ADAM_BYTES = 28  # of an element: weight and two moments read and written, the gradient read, in fp32
MOVED_BYTES = 4  # of an element elsewhere: read and written in 16 bits
OPERATORS = 200  # fewer than the launches that CUDA queues before a launch waits
COPIED = (2**20, 2**24, 2**28)  # bytes


def kernels(tiny: bool = False) -> list[Kernel]:
    """Every kernel, as plain data; or a few small ones, which any machine runs."""
    return list(_tiny() if tiny else _all())


def _all() -> Iterator[Kernel]:
    for columns, reduced in LAYERS:
        for tokens in TOKENS:
            if tokens * columns * reduced >= LEAST_PRODUCT:
                yield _product(tokens, columns, reduced, "bf16")
    for tokens in TOKENS[:2]:
        yield _product(tokens, *HEAD, "bf16")
    for columns, reduced in ADAPTERS:
        yield _product(TOKENS[2], columns, reduced, "bf16")
    for dtype in DTYPES[1:]:
        for columns, reduced in ((2048, 2048), (4096, 4096)):
            yield _product(TOKENS[1], columns, reduced, dtype)
    for heads, keys, width in HEADS:
        for length in LENGTHS:
            for causal in (True, False):
                for phase in ("forward", "backward"):
                    yield {"kind": "attention", "phase": phase, "batch": max(1, 8192 // length), "heads": heads,
                           "kv_heads": keys, "length": length, "head_size": width, "causal": causal}  # fmt: skip
    for sort in SORTS:
        for elements in ELEMENTS[1:] if sort == "adam" else ELEMENTS:  # a small update takes less than its launch
            yield {"kind": "memory", "sort": sort, "elements": elements}
    for phase in ("forward", "views"):
        yield {"kind": "host", "phase": phase, "operators": OPERATORS}
    for direction in ("to_device", "to_host"):
        for size in COPIED:
            yield {"kind": "copy", "direction": direction, "bytes": size}


def _tiny() -> Iterator[Kernel]:
    yield _product(32, 64, 16, "fp32")
    yield {"kind": "attention", "phase": "forward", "batch": 1, "heads": 4, "kv_heads": 2, "length": 16,
           "head_size": 16, "causal": True}  # fmt: skip
    yield {"kind": "attention", "phase": "backward", "batch": 1, "heads": 4, "kv_heads": 4, "length": 16,
           "head_size": 16, "causal": False}  # fmt: skip
    yield from ({"kind": "memory", "sort": sort, "elements": 4 * WIDTH} for sort in SORTS)
    yield {"kind": "host", "phase": "forward", "operators": 10}
    yield {"kind": "host", "phase": "views", "operators": 10}


def _product(rows: int, columns: int, reduced: int, dtype: str) -> Kernel:
    return {"kind": "product", "m": rows, "n": columns, "k": reduced, "dtype": dtype}


def kernel_name(kernel: Kernel) -> str:
    """What a kernel is known by in the records."""
    return ", ".join(f"{name} {value}" if name != "kind" else str(value) for name, value in kernel.items())


def node_of(profile: str, host: Mapping[str, Any]) -> Rates:
    """A node of a profile, with what the machine has otherwise, as the laws of kernels read it."""
    job = dsgen.job(dsgen.profile(profile) | dsgen.profile("1b") | ({"hardware": dict(host)} if host else {}))
    return rates_of(job.hardware, job.network)


def law_seconds(rates: Rates, kernel: Kernel) -> float:
    """What the laws say that a kernel takes."""
    kind = kernel["kind"]
    if kind == "product":
        return product_seconds(rates, kernel["m"], kernel["n"], kernel["k"], kernel["dtype"])
    if kind == "attention":
        return attention_seconds(
            rates,
            fused_kernel("sdpa", rates.architecture),
            kernel["phase"],
            batch=kernel["batch"],
            heads=kernel["heads"],
            kv_heads=kernel["kv_heads"],
            queries=kernel["length"],
            keys=kernel["length"],
            head_size=kernel["head_size"],
            causal=kernel["causal"],
        )
    if kind == "memory":
        each = ADAM_BYTES if kernel["sort"] == "adam" else MOVED_BYTES
        return traffic_seconds(rates, each * kernel["elements"], kernel["sort"])
    if kind == "host":
        operators = kernel["operators"]
        views = kernel["phase"] == "views"
        return dispatch_seconds(rates, 0 if views else operators, views=operators if views else 0)
    direction = "to_host" if kernel["direction"] == "to_host" else "to_device"
    return copy_seconds(rates, kernel["bytes"], direction=direction)
