"""What the software of each maker of accelerators calls the parts that take memory, and the tool that shows it.

AMD's are those of ROCm (PyTorch's HIP semantics; rocm-smi; RCCL), Intel's those of Gaudi's SynapseAI (hl-smi; HCCL).
PYTORCH_HIP_ALLOC_CONF is read by torch for ROCm (2.13, c10/cuda/CUDAAllocatorConfig.h), which has segments that grow
since 2026 with ROCm 7 alone (github.com/pytorch/pytorch/pull/179930), and may hang with them (issues/192259). On Gaudi
no allocator of torch's is at work. A GPU of no maker is taken for one of NVIDIA's.
"""

from typing import NamedTuple

__all__ = ["NVIDIA", "Maker", "maker_of"]


class Maker(NamedTuple):
    """Words of one maker.

    Attributes:
        context: What a process has on the device before it has a tensor.
        collectives: The library that joins devices.
        workspace: What the library of products takes from torch's allocator.
        tool: The program that shows what is taken of a device.
        watched: How it is called for the memory alone.
        worked: How it is called for how much a device works.
        slowed: How it is called for what slows a device down.
        allocator: The variable that torch's allocator reads; "" where there is none.
        fixed: Why its segments cannot be counted on to grow; "" where they can.
        full: What torch says when a device is full.
    """

    context: str
    collectives: str
    workspace: str
    tool: str
    watched: str
    worked: str
    slowed: str
    allocator: str
    fixed: str
    full: str

    def __repr__(self) -> str:
        """In a line, for it stands in every place of an estimate."""
        return f"Maker({self.tool})"

    @property
    def grows(self) -> bool:
        """Whether a plan may count on segments that grow."""
        return not self.fixed


NVIDIA = Maker(
    context="CUDA context",
    collectives="NCCL",
    workspace="cuBLAS workspace",
    tool="nvidia-smi",
    watched="nvidia-smi --query-gpu=memory.used --format=csv",
    worked="nvidia-smi dmon -s u",
    slowed="nvidia-smi -q -d PERFORMANCE",
    allocator="PYTORCH_CUDA_ALLOC_CONF",
    fixed="",
    full="CUDA out of memory",
)
_AMD = Maker(
    context="HIP context",
    collectives="RCCL",
    workspace="hipBLAS workspace",
    tool="rocm-smi",
    watched="rocm-smi --showmeminfo vram",
    worked="rocm-smi --showuse",
    slowed="rocm-smi --showtemp --showclocks",
    allocator="PYTORCH_HIP_ALLOC_CONF",
    fixed="of AMD's GPUs torch has them with ROCm 7 alone, where they may hang",
    full="HIP out of memory",
)
_INTEL = Maker(
    context="HPU context",
    collectives="HCCL",
    workspace="HPU workspace",
    tool="hl-smi",
    watched="hl-smi",
    worked="hl-smi",
    slowed="hl-smi",
    allocator="",
    fixed="Gaudi has another allocator than torch's",
    full="Allocation failed for size",
)
_MAKERS = {"amd": _AMD, "intel": _INTEL}


def maker_of(vendor: str) -> Maker:
    """The words for a vendor of hardware profiles."""
    return _MAKERS.get(vendor, NVIDIA)
