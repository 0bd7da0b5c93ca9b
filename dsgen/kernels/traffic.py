"""How long kernels take that memory bounds: element-wise ones, norms, reductions, gathers."""

from __future__ import annotations

from dsgen.kernels.rates import Rates

__all__ = ["SORTS", "traffic_seconds"]

# Share of what large copies reach, by sort of kernel. Fitted: norm on Liger's fused norms, reduction on torch's
# LayerNorm (A100, H100), mixed on Hugging Face's RMSNorm (A100), whose operators cast or broadcast, so that torch
# takes its loops without vector loads. Taken from those: gather (reads rows), adam (eight streams at once).
# Scatter: rows are sorted, then added; derived, three passes for one.
SORTS = {"stream": 1.0, "norm": 0.97, "reduction": 0.65, "mixed": 0.60, "gather": 0.85, "scatter": 0.33, "adam": 0.9}


# Share of an L2 cache up to which the bytes of a kernel lie in it: of an L40 64 of 96 MiB do and 129 do not, of an H200
# 32 of 60 do and 64 do not (te42kyfo/gpu-benches gpu-small-kernels).
CACHED = 0.65
# Of what kernels of that size move in a step, the share that lies there: what they read and find there, and what they
# write that is read again before it leaves. Derived: an LRU cache of 32 to 96 MiB beside the simulated operators of 3
# steps of Llama-3.1-8B (QLoRA of 1,024 and of 4,096 tokens, LoRA of 2,048) has 0.62 to 0.88 of it, 0.77 in the mean.
HOT = 0.77
_BY_ROW = ("gather", "scatter", "adam")  # what they read was written long before


def traffic_seconds(rates: Rates, size_bytes: float, sort: str = "stream") -> float:
    """One kernel that moves so many bytes in all, read and written.

    Args:
        rates: The node.
        size_bytes: What it reads plus what it writes.
        sort: One of `SORTS`: stream (element-wise, one dtype and shape), mixed (casts, broadcasts), norm (fused),
            reduction (torch's norms and softmax), gather (embedding), scatter (its gradient) or adam.
    """
    speed = rates.memory_bytes_per_second * rates.memory_efficiency * SORTS[sort]
    if size_bytes > CACHED * rates.l2_cache_bytes or sort in _BY_ROW:
        return size_bytes / speed + rates.kernel_seconds
    fast = max(rates.l2_bytes_per_second * SORTS[sort], speed)
    return size_bytes * ((1 - HOT) / speed + HOT / fast) + rates.kernel_seconds
