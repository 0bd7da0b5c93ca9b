"""What no tensor of the training holds on a GPU, as a stated allowance: context, NCCL's buffers, cuBLAS's workspaces.

The context and NCCL's buffers lie outside torch's allocator; the workspaces are taken from it, so they are part of
`torch.cuda.max_memory_allocated` and `max_memory_reserved`. `Hardware.usable_memory_bytes` is what the driver reports
as the total before any context is created, so the context is not taken off it yet.
"""

import functools
from typing import NamedTuple

from dsgen.jobs.said_releases import before
from dsgen.kernels.architectures import Architecture, architecture, multiprocessors
from dsgen.shapes.makers import NVIDIA, Maker, maker_of
from dsgen.shapes.profiles import Hardware

__all__ = ["Overhead", "overhead", "workspace_bytes"]

MIB = 2**20

# --- The context -----------------------------------------------------------------------------------------------------
# A context keeps local memory for every thread that can be resident, so it grows with the multiprocessors and with
# the threads of one. nvidia-smi readings of a process that has made a context and nothing else, bytes a thread:
#   RTX 3090     82 SM x 1536   256 MiB   2131   torch 2.7.1 cu128    github.com/invoke-ai/InvokeAI/issues/9413
#   RTX 6000 Ada 142 SM x 1536  426 MiB   2048   torch 2.10.0 cu130   github.com/unslothai/unsloth-zoo/pull/1053
#   RTX PRO 6000 188 SM x 1536  555 MiB   2015   CUDA's primary one   github.com/ggml-org/llama.cpp/pull/23604
#   B200         148 SM x 2048  612 MiB   2117   torch                github.com/unslothai/unsloth/pull/8669
CONTEXT_BYTES_PER_THREAD = 2131  # the largest of these four, on which it was fitted
# H200, 132 SM x 2048: 641,728,512 bytes (612 MiB) of the process in nvidia-smi, and 648,871,936 in use on the card as
# the driver says (driver 580, CUDA 13.0, torch 2.11; docs/gpu.md). Of Hopper nothing else is published.
HOPPER_CONTEXT_BYTES_PER_THREAD = 2374
HOPPER_CONTEXT_MOST_BYTES_PER_THREAD = 2401  # by the driver: what no process can get
# Kernels of cuBLAS, cuDNN, attention and torch that lazy loading brings in with the first steps: what a process on an
# H100 held outside torch beyond its context, 0.16 GiB (github.com/vllm-project/vllm/pull/12126). torch before 1.13 has
# all of them at once: 667 MB with the context, 287 where they are loaded late (github.com/pytorch/pytorch/pull/86509).
LOADED_KERNELS_BYTES = 164 * MIB
# The most that 38 runs on the H200 held beyond the context and NCCL_ALONE_BYTES: 178 MiB with plain attention, 194 with
# torch's fused, up to 276 with an optimizer on the CPU, more the larger the model (docs/gpu.md).
LOADED_KERNELS_MOST_BYTES = 276 * MIB
# No reading of a HIP context is published. What XLA hides of an MI200 or MI300 for "late allocations by internal ROCm
# libraries" (openxla/xla, stream_executor/rocm, RESERVED_GFX9_X).
HIP_CONTEXT_BYTES = 1024 * MIB
UNKNOWN_CONTEXT_BYTES = 612 * MIB  # where nothing is published: the largest reading above

# --- cuBLAS ----------------------------------------------------------------------------------------------------------
# PyTorch 2.13, aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize: 32 MiB for compute capability 9, 10
# and 12, else :4096:2:16:8. cuBLASLt shares it there (TORCH_CUBLASLT_UNIFIED_WORKSPACE, on by default).
CUBLAS_WORKSPACE_BYTES = 2 * 4096 * 1024 + 8 * 16 * 1024  # 8,519,680; seen in github.com/pytorch/pytorch/issues/95668
CUBLAS_WORKSPACE_WIDE_BYTES = 32 * MIB
# The same file, for ROCm: hipBLAS on gfx942 and gfx950, and on older ones; hipBLASLt's is its own.
HIPBLAS_WORKSPACE_WIDE_BYTES = 128 * MIB
HIPBLAS_WORKSPACE_BYTES = 32 * MIB
HIPBLASLT_WORKSPACE_BYTES = 76 * MIB
# One for each handle and stream, and a handle for each thread: the program's own, and autograd's for backward
# (the same file, setWorkspaceForHandle and the thread_local pool window).
WORKSPACE_THREADS = 2

# --- NCCL ------------------------------------------------------------------------------------------------------------
# NCCL 2.30, src/init.cc: FIFOs of a connection by protocol, DEFAULT_LL_BUFFSIZE, DEFAULT_LL128_BUFFSIZE and
# DEFAULT_BUFFSIZE (NCCL_BUFFSIZE): 0.5 + 4.6875 + 4 MiB, in pages of 2 MiB (src/transport/p2p.cc, CUDA_IPC_MIN).
RECEIVER_BYTES = 10 * MIB  # 10,485,760 in github.com/NVIDIA/nccl/issues/1685
SENDER_BYTES = 2 * MIB  # 2,097,152 there; where the receiver reads from the sender (A100) it is 6 and 6 MiB
# A communicator of two of four A100 took 544 MiB and one of all four 688 MiB on rank 0, the end of its tree
# (github.com/NVIDIA/nccl/issues/964): 24 channels x 12 MiB and x 18 MiB, and 256 MiB in both cases.
COMMUNICATOR_BYTES = 256 * MIB
# A communicator of one rank: 536,870,912 bytes of its network proxy's shared buffers, with the first collective, on
# a B300 with NCCL 2.28.9, torch 2.11 and CUDA 13.0 (github.com/NVIDIA/nccl/issues/2363). An RTX 3090 took them with
# NCCL_RUNTIME_CONNECT=0 alone (github.com/NVIDIA/nccl/pull/2366). With the same torch the H200 held so much more, too.
NCCL_ALONE_BYTES = 512 * MIB
NCCL_ALONE = ("sm90", "sm100")  # families of which it was seen
# Channels of a node's rings: src/graph/search.cc picks the speed (20 to 90 GB/s) and doubles, connect.cc doubles again.
# By that arithmetic H100 has 6 x 60 GB/s and B200 8 x 90 GB/s, both doubled twice: no log of theirs was found.
# Logs: "12 coll channels" V100, "Channel 23/24" A100 (nccl-tests issue 100), "16 coll channels" H800 (nccl issue 892).
NVLINK_CHANNELS = {"sm70": 12, "sm80": 24, "sm90": 24, "sm100": 32}
NVLINK_CHANNELS_OTHER = 16  # that of the H800's log, for families of which nothing is known
NVLINK_NARROW_BYTES_PER_SECOND = 200e9  # A800 and H800: eight links, and 16 channels
PCIE_CHANNELS = 4  # 2 in logs of PCIe 3 and 4 (nccl-tests issue 133); search.cc doubles from 25 GB/s on, as PCIe 5 has
# NVLink SHARP, src/transport/nvls.cc: channels x 2 x NVLS_CHUNKSIZE (128 KiB) x NCCL_STEPS (8) for each rank of a node.
# The channels are its defaults in one node (NVLS_NCHANNELS_SM90, _SM100_NVL); over several nodes sm100 has 24 or 32.
NVLS_CHANNELS = {"sm90": 16, "sm100": 24}
NVLS_CHANNEL_BYTES = 2 * 128 * 1024 * 8
# Until 2.22 a communicator connected its rings, trees and SHARP when it was made; since then each with the first
# collective that uses it (NVIDIA/nccl 178b6b75, src/init.cc: runtimeConn). SHARP came with 2.17. torch 2.6 requires
# nvidia-nccl-cu12 2.21.5, and 2.7 2.26.2; 2.0 was built with 2.14.
LAZY_SINCE_TORCH = 2, 7
NVLS_SINCE_TORCH = 2, 1
# A channel of a GPU that leaves the node: ring 1 + 1, tree to a parent and two children 3 + 3; with GPUDirect RDMA
# both sides are in GPU memory (src/transport/net.cc), a receiver's size each.
NETWORK_CONNECTIONS = 8
NETWORK_CHANNELS = 2  # of one GPU: "Channel 00/16" between nodes of eight H100 (github.com/NVIDIA/nccl/issues/1453)
# RCCL on MI250X: 1 GiB with the first communicator and 0.65 GiB with each further one, whatever the number of ranks
# (github.com/Lumi-supercomputer/LUMI-AI-Guide/issues/111).
RCCL_FIRST_BYTES = 1024 * MIB
RCCL_FURTHER_BYTES = 666 * MIB

HOPPER = "sm90"
_WIDE = ("sm90", "sm100", "sm120")


class Overhead(NamedTuple):
    """Bytes of one GPU that no tensor of the training holds.

    Attributes:
        context_bytes: The CUDA or HIP context with the kernels that are loaded into it.
        nccl_bytes: NCCL's or RCCL's buffers.
        workspace_bytes: cuBLAS's workspaces, which torch takes from its own allocator.
        others_bytes: What other processes hold there.
        more_bytes: What may lie there beside all of these, by driver, release and what runs; in no sum here.
        maker: Who calls them what.
    """

    context_bytes: int
    nccl_bytes: int
    workspace_bytes: int
    others_bytes: int = 0
    more_bytes: int = 0
    maker: Maker = NVIDIA

    @property
    def outside_bytes(self) -> int:
        """What torch does not see: the context, NCCL's buffers and other processes."""
        return self.context_bytes + self.nccl_bytes + self.others_bytes

    @property
    def total(self) -> int:
        """All of it."""
        return self.outside_bytes + self.workspace_bytes

    @property
    def parts(self) -> dict[str, int]:
        """Name -> bytes; they add up to `total`."""
        return {
            self.maker.context: self.context_bytes,
            f"{self.maker.collectives} buffers": self.nccl_bytes,
            self.maker.workspace: self.workspace_bytes,
            **({"other processes": self.others_bytes} if self.others_bytes else {}),
        }


@functools.lru_cache(maxsize=1024)
def overhead(hardware: Hardware, world: int, groups: int = 1, torch: str | None = None) -> Overhead:
    """The allowance for one GPU.

    Args:
        hardware: One kind of node.
        world: Ranks of the training, one a GPU.
        groups: Communicators that a rank takes part in; each has buffers of its own.
        torch: Its release, such as 2.6, which brings NCCL's; None for the newest.
    """
    family = architecture(hardware)
    if family.name == "cpu":
        return Overhead(0, 0, 0)
    nccl = _nccl(hardware, family, world, groups, torch)
    own = _context(hardware, family), nccl, WORKSPACE_THREADS * _workspace(family)
    more = _more(hardware, family, world)
    return Overhead(*own, hardware.gpu_memory_used_bytes, more, maker_of(hardware.vendor))


def _context(hardware: Hardware, family: Architecture) -> int:
    if hardware.vendor == "amd":
        return HIP_CONTEXT_BYTES
    if not family.threads:
        return UNKNOWN_CONTEXT_BYTES
    of_a_thread = HOPPER_CONTEXT_BYTES_PER_THREAD if family.name == HOPPER else CONTEXT_BYTES_PER_THREAD
    return multiprocessors(hardware) * family.threads * of_a_thread + LOADED_KERNELS_BYTES


def _more(hardware: Hardware, family: Architecture, world: int) -> int:
    """What was seen beyond the context, the kernels and NCCL's buffers that are expected; 0 where nobody looked."""
    if not family.threads:
        return 0
    more = LOADED_KERNELS_MOST_BYTES - LOADED_KERNELS_BYTES
    if family.name == HOPPER:
        threads = multiprocessors(hardware) * family.threads
        more += threads * (HOPPER_CONTEXT_MOST_BYTES_PER_THREAD - HOPPER_CONTEXT_BYTES_PER_THREAD)
    return more + (NCCL_ALONE_BYTES if world == 1 and family.name in NCCL_ALONE else 0)


def workspace_bytes(hardware: Hardware) -> int:
    """cuBLAS's workspace of one thread on one stream."""
    return _workspace(architecture(hardware))


def _workspace(family: Architecture) -> int:
    if family.name.startswith("gfx"):
        own = HIPBLAS_WORKSPACE_WIDE_BYTES if family.name == "gfx94" else HIPBLAS_WORKSPACE_BYTES
        return own + HIPBLASLT_WORKSPACE_BYTES
    if not family.threads:
        return 0
    return CUBLAS_WORKSPACE_WIDE_BYTES if family.name in _WIDE else CUBLAS_WORKSPACE_BYTES


def _nccl(hardware: Hardware, family: Architecture, world: int, groups: int, torch: str | None) -> int:
    """Buffers of every communicator; a rank that is alone has no connections."""
    if world == 1 or groups == 0:
        return 0
    if hardware.vendor == "amd":
        return RCCL_FIRST_BYTES + (groups - 1) * RCCL_FURTHER_BYTES
    local = min(world, hardware.gpus_per_node)
    channels = _channels(hardware, family)
    pair = RECEIVER_BYTES + SENDER_BYTES
    ring = channels * pair if local > 1 else 0
    # An all-reduce goes over a tree, which uses the ring's neighbours in the other direction too, or over NVLink SHARP.
    tree = channels * pair if local > 2 else 0
    sharp = NVLS_CHANNELS.get(family.name, 0) * NVLS_CHANNEL_BYTES * local if _switched(hardware, local) else 0
    sharp = 0 if before(torch, NVLS_SINCE_TORCH) else sharp
    reduced = tree + sharp if before(torch, LAZY_SINCE_TORCH) else max(tree, sharp)
    network = NETWORK_CHANNELS * NETWORK_CONNECTIONS * RECEIVER_BYTES if world > local else 0
    return groups * (COMMUNICATOR_BYTES + ring + reduced + network)


def _switched(hardware: Hardware, local: int) -> bool:
    """Whether the GPUs meet in an NVSwitch, as more than two joined by NVLink do since Hopper."""
    return hardware.intra_node_link == "nvlink" and local > 2


def _channels(hardware: Hardware, family: Architecture) -> int:
    if hardware.intra_node_link != "nvlink":
        return PCIE_CHANNELS
    channels = NVLINK_CHANNELS.get(family.name, NVLINK_CHANNELS_OTHER)
    if hardware.intra_node_bandwidth_bytes_per_second <= NVLINK_NARROW_BYTES_PER_SECOND:
        return min(channels, NVLINK_CHANNELS_OTHER)
    return channels
