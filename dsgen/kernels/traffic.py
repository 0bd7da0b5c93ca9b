"""How long kernels take that memory bounds: element-wise ones, norms, reductions, gathers."""

from __future__ import annotations

from dsgen.kernels.rates import Rates

__all__ = ["SORTS", "traffic_seconds"]

# Share of what large copies reach, by sort of kernel. Fitted: norm on Liger's fused norms, reduction on torch's
# LayerNorm (A100, H100), mixed on Hugging Face's RMSNorm (A100), whose operators cast or broadcast, so that torch
# takes its loops without vector loads. Taken from those: gather (reads rows), adam (eight streams at once).
# Scatter: rows are sorted, then added; derived, three passes for one.
SORTS = {"stream": 1.0, "norm": 0.97, "reduction": 0.65, "mixed": 0.60, "gather": 0.85, "scatter": 0.33, "adam": 0.9}


def traffic_seconds(rates: Rates, size_bytes: float, sort: str = "stream") -> float:
    """One kernel that moves so many bytes in all, read and written.

    Args:
        rates: The node.
        size_bytes: What it reads plus what it writes.
        sort: One of `SORTS`: stream (element-wise, one dtype and shape), mixed (casts, broadcasts), norm (fused),
            reduction (torch's norms and softmax), gather (embedding), scatter (its gradient) or adam.
    """
    speed = rates.memory_bytes_per_second * rates.memory_efficiency * SORTS[sort]
    return size_bytes / speed + rates.kernel_seconds
