"""How much of a GPU and of a node is really there for training."""

from __future__ import annotations

from dsgen.shapes.profiles import Hardware

__all__ = ["RANK_PROCESS_BYTES", "gpu_limit", "host_limit"]

RANK_PROCESS_BYTES = 3 * 2**30  # resident memory of one Python rank with torch, CUDA libraries and DeepSpeed
HOST_SYSTEM_SHARE = 0.05  # of host RAM that the system, the page cache's floor and the data loader keep


def gpu_limit(hardware: Hardware) -> int:
    """Bytes of one GPU that a process can get."""
    return hardware.usable_memory_bytes


def host_limit(hardware: Hardware) -> int:
    """Bytes of one node's RAM that training can get."""
    return int(hardware.host_memory_bytes * (1 - HOST_SYSTEM_SHARE))
