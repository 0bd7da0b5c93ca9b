"""How much of a GPU and of a node is really there for training."""

from __future__ import annotations

from dsgen.profiles import Hardware

__all__ = ["RANK_PROCESS_BYTES", "gpu_limit", "gpu_overhead", "host_limit"]

CUDA_CONTEXT_BYTES = 512 * 2**20  # context, cuBLAS and kernels: 400 to 550 MiB seen by nvidia-smi on Ampere and Hopper
CUBLAS_WORKSPACE_BYTES = 32 * 2**20  # torch: CUBLAS_WORKSPACE_CONFIG default on Hopper, 4096 x 2 + 16 x 8 KiB elsewhere
NCCL_BYTES = 640 * 2**20  # channels and buffers of one communicator per group: 0.5 to 0.8 GiB seen on 8 GPUs
RANK_PROCESS_BYTES = 3 * 2**30  # resident memory of one Python rank with torch, CUDA libraries and DeepSpeed
HOST_SYSTEM_SHARE = 0.05  # of host RAM that the system, the page cache's floor and the data loader keep


def gpu_overhead(hardware: Hardware, world: int) -> int:
    """Bytes on the GPU that no tensor holds: context, workspace and, with several GPUs, NCCL's buffers."""
    if hardware.vendor == "cpu":
        return 0
    return CUDA_CONTEXT_BYTES + CUBLAS_WORKSPACE_BYTES + (NCCL_BYTES if world > 1 else 0)


def gpu_limit(hardware: Hardware) -> int:
    """Bytes of one GPU that a process can get."""
    return hardware.usable_memory_bytes


def host_limit(hardware: Hardware) -> int:
    """Bytes of one node's RAM that training can get."""
    return int(hardware.host_memory_bytes * (1 - HOST_SYSTEM_SHARE))
