"""Measured facts of families of GPUs, of links and of hosts, each with its unit and its source.

The rows lie in benchmarks/data/kernels.json; docs/kernels.md holds the laws against them. A profile's own value
(`product_efficiency`, `memory_efficiency`, `dispatch`) goes before its family's.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FAMILIES", "HOST", "LINKS", "NETWORKS", "Family", "Host"]


class Family(NamedTuple):
    """What cards of one family share.

    Attributes:
        measured_on: The profile whose measurements these are.
        product_efficiency: Share of the dense 16-bit peak that large products keep up.
        fp32_efficiency: The same of fp32 outside tensor cores.
        memory_efficiency: Share of peak memory bandwidth that large element-wise kernels reach.
        kernel_seconds: Shortest time a kernel takes on the device, launched behind another.
        processors: Units that tiles are spread over, where the fp32 peak does not tell.
    """

    measured_on: str
    product_efficiency: float
    fp32_efficiency: float
    memory_efficiency: float
    kernel_seconds: float
    processors: int = 0


FAMILIES = {
    "sm70": Family("v100-32g", 0.80, 0.85, 0.86, 2.2e-6),
    "sm75": Family("t4-16g", 0.65, 0.60, 0.75, 2.2e-6),
    "sm80": Family("a100-80g", 0.82, 0.90, 0.85, 2.4e-6),
    "sm86": Family("rtxa6000-48g", 0.80, 0.80, 0.85, 2.0e-6),
    "sm89": Family("l40s-48g", 0.70, 0.75, 0.85, 1.8e-6),
    "sm90": Family("h100-80g", 0.76, 0.75, 0.82, 2.0e-6),
    "sm100": Family("b200-180g", 0.51, 0.75, 0.82, 2.0e-6),
    "sm120": Family("rtxpro6000-96g", 0.82, 0.75, 0.85, 1.8e-6),
    "gfx90a": Family("mi210-64g", 0.70, 0.75, 0.80, 4.0e-6, 104),
    "gfx94": Family("mi300x-192g", 0.51, 0.75, 0.75, 4.0e-6, 304),
    "gaudi": Family("gaudi2-96g", 0.90, 0.75, 0.80, 4.0e-6, 24),
    "cpu": Family("cpu", 0.05, 0.50, 0.70, 1.0e-6, 56),
}

# Share of the line rate that the ring of a large collective reaches on the wire (nccl-tests' bus bandwidth).
LINKS = {"nvlink": 0.80, "xgmi": 0.75, "pcie": 0.42, "pcie through the host": 0.42, "ethernet": 0.75, "memory": 0.5,
         "none": 1.0}  # fmt: skip
NETWORKS = {"infiniband": 0.92, "roce": 0.90, "efa": 0.90, "ethernet": 0.90, "tcp": 0.60, "none": 1.0}


class Host(NamedTuple):
    """What the host's cores cost and do.

    Attributes:
        dispatch_seconds: One eager operator, forward.
        backward_dispatch_seconds: One operator that autograd calls.
        view_seconds: One operator without a kernel.
        collective_dispatch_seconds: One call of torch.distributed.
        hook_seconds: ZeRO-3's hooks of one module in one pass.
        core_bytes_per_second: What one core moves in CPU Adam.
    """

    dispatch_seconds: float
    backward_dispatch_seconds: float
    view_seconds: float
    collective_dispatch_seconds: float
    hook_seconds: float
    core_bytes_per_second: float


HOST = Host(6e-6, 5e-6, 1.5e-6, 40e-6, 200e-6, 6e9)
