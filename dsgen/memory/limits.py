"""How much of a GPU and of a node is really there for training."""

from __future__ import annotations

from dsgen.shapes.profiles import Hardware

__all__ = ["RANK_PROCESS_BYTES", "gpu_limit", "host_limit"]

# Bytes that one Python rank holds beside the model. Without CUDA 0.34 GiB were measured behind a step (Pss; torch 2.13
# for the CPU, transformers 5.23, DeepSpeed 0.19.8). The rest is our choice, measured nowhere: CUDA's libraries and its
# context on the host's side, what NCCL and torch lock in pages, a data loader. A node of 8 GPUs pays 24 GiB for it.
RANK_PROCESS_BYTES = 3 * 2**30
# The share of a node's RAM that the system, the floor of the page cache and the data loader keep: our choice too.
HOST_SYSTEM_SHARE = 0.05


def gpu_limit(hardware: Hardware) -> int:
    """Bytes of one GPU that a process can get."""
    return hardware.usable_memory_bytes


def host_limit(hardware: Hardware) -> int:
    """Bytes of one node's RAM that training can get."""
    return int(hardware.host_memory_bytes * (1 - HOST_SYSTEM_SHARE))
