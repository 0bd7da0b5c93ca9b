"""How much of a GPU and of a node is really there for training."""

from __future__ import annotations

from dsgen.shapes.profiles import Hardware

__all__ = ["PINNED", "RANK_PROCESS_BYTES", "gpu_limit", "host_limit"]

# Bytes that one Python rank holds beside tensors, CUDA's libraries, its context and NCCL of one rank included: most of
# what 41 runs on an H200 showed (benchmarks/gpu_memory.json, ru_maxrss less the tensors; torch 2.11, DeepSpeed 0.19.8).
# Those with an optimizer or parameters in RAM take 1.5 to 1.9 GiB.
RANK_PROCESS_BYTES = 2 * 2**30
PINNED = "page-locked reserve"  # what torch's allocator of page-locked memory holds beside the tensors
# The share of a node's RAM that training does not get: the 5 % that GKE on-prem keeps for a node's system, beside 0.4
# GiB (cloud.google.com/anthos/clusters/docs/on-prem/1.3/how-to/resources-available-pods). Of a p4d.24xlarge's 1,152 GiB
# the firmware leaves 1,139.75 (its boot log in github.com/aws/aws-ofi-nccl/issues/141), and Linux describes each page
# of 4,096 bytes in 64 (docs.kernel.org/mm/vmemmap_dedup.html): 2.6 % before any process runs. With those alone 46 of
# the 11,562 plans of golden/matrix.csv are others and no more fit; with 0.10 it is 122, and five cells that have a plan
# have none.
HOST_SYSTEM_SHARE = 0.05


def gpu_limit(hardware: Hardware) -> int:
    """Bytes of one GPU that a process can get."""
    return hardware.usable_memory_bytes


def host_limit(hardware: Hardware) -> int:
    """Bytes of one node's RAM that training can get."""
    return int(hardware.host_memory_bytes * (1 - HOST_SYSTEM_SHARE))
