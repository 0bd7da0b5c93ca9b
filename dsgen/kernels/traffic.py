"""How long kernels take that memory bounds: element-wise ones, norms, reductions, gathers."""

from __future__ import annotations

from dsgen.kernels.rates import Rates

__all__ = ["SORTS", "traffic_seconds"]

# Share of what large copies reach, by sort of kernel.
SORTS = {"stream": 1.0, "norm": 0.9, "reduction": 0.9, "gather": 0.8, "scatter": 0.3, "adam": 0.85}


def traffic_seconds(rates: Rates, size_bytes: float, sort: str = "stream") -> float:
    """One kernel that moves so many bytes in all, read and written.

    Args:
        rates: The node.
        size_bytes: What it reads plus what it writes.
        sort: stream, norm, reduction, gather (embedding), scatter (its gradient) or adam.
    """
    speed = rates.memory_bytes_per_second * rates.memory_efficiency * SORTS[sort]
    return size_bytes / speed + rates.kernel_seconds
