"""How much of a GPU and of a node is really there for training."""

from __future__ import annotations

from dsgen.shapes.profiles import Hardware

__all__ = ["RANK_PROCESS_BYTES", "gpu_limit", "host_limit"]

# Two allowances of ours, measured nowhere: bytes that one Python rank holds with torch, CUDA's libraries and DeepSpeed;
# and the share of a node's RAM that the system, the floor of the page cache and the data loader keep.
RANK_PROCESS_BYTES = 3 * 2**30
HOST_SYSTEM_SHARE = 0.05


def gpu_limit(hardware: Hardware) -> int:
    """Bytes of one GPU that a process can get."""
    return hardware.usable_memory_bytes


def host_limit(hardware: Hardware) -> int:
    """Bytes of one node's RAM that training can get."""
    return int(hardware.host_memory_bytes * (1 - HOST_SYSTEM_SHARE))
