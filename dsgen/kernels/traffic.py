"""How long kernels take that memory bounds: element-wise ones, norms, reductions, gathers."""

from __future__ import annotations

from dsgen.kernels.rates import Rates

__all__ = ["SORTS", "traffic_seconds"]

# Share of what large copies reach, by sort of kernel. Fitted: norm on Liger's fused norms, reduction on torch's
# LayerNorm (A100, H100), mixed on Hugging Face's RMSNorm (A100), whose operators cast or broadcast, so that torch
# takes its loops without vector loads. Taken from those: gather (reads rows), adam (eight streams at once).
# Scatter: rows are sorted, then added; derived, three passes for one.
SORTS = {"stream": 1.0, "norm": 0.97, "reduction": 0.65, "mixed": 0.60, "gather": 0.85, "scatter": 0.33, "adam": 0.9}


# Of an L2 cache: up to the first share of it all that a kernel moves stays there, from the second on nothing does. On
# an L40 a copy has 4.3 TB/s up to 0.75 of its 96 MiB, 3.0 at 0.92, 2.1 at 0.98, 1.6 at 1.04, and at 1.56 the memory's
# 0.78 (RRZE-HPC/gpu-benches gpu-small-kernels/l40.txt).
CACHED, GONE = 0.85, 1.4
# Of what small kernels move in a step, the share that lies there: what they read and find there, and what they write
# that is read again before it leaves. Derived: an LRU cache of 32 to 96 MiB beside the simulated operators of three
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
    if size_bytes >= GONE * rates.l2_cache_bytes or sort in _BY_ROW:
        return size_bytes / speed + rates.kernel_seconds
    fast = max(rates.l2_bytes_per_second * SORTS[sort], speed)
    hot = HOT * min(1.0, (GONE - size_bytes / rates.l2_cache_bytes) / (GONE - CACHED))
    return size_bytes * ((1 - hot) / speed + hot / fast) + rates.kernel_seconds
