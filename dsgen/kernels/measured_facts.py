"""Measured facts of families of GPUs, of links and of hosts, each with its unit and its source.

The rows lie in benchmarks/data/kernels.json; docs/kernels.md holds the laws against them. A profile's own value
(`product_efficiency`, `memory_efficiency`, `dispatch`) goes before its family's.
"""

from typing import NamedTuple

__all__ = [
    "CONTENTION",
    "DERIVED",
    "GENERATIONS",
    "HOST",
    "L2_BYTES_PER_SECOND",
    "LINKS",
    "NETWORKS",
    "STANDS_IN",
    "TCP",
    "Contention",
    "Generation",
    "HostCosts",
    "Tcp",
]


class Generation(NamedTuple):
    """What the cards of one generation share.

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


# Shares of peak: largest sustained products of benchmarks/data/kernels.json on the card named; memory: gpu-benches'
# streams and large copies (chsasank/device-benchmarks); kernel: gpu-benches' small kernels one behind another, A100
# 2.6, H200 2.4, A40 2.0, L40 1.6, MI210 2.0 us. fp32: zzc0721/torch-performance-test-data. Gaudi and cpu: derived.
GENERATIONS = {
    "sm70": Generation("v100-32g", 0.80, 0.85, 0.87, 2.5e-6),
    "sm75": Generation("t4-16g", 0.645, 0.60, 0.75, 2.5e-6),
    "sm80": Generation("a100-80g", 0.83, 0.90, 0.86, 2.5e-6),
    "sm86": Generation("rtxa6000-48g", 0.79, 0.80, 0.88, 2.0e-6),
    "sm89": Generation("l40s-48g", 0.70, 0.75, 0.86, 1.7e-6),
    "sm90": Generation("h100-80g", 0.77, 0.75, 0.80, 2.4e-6),
    "sm100": Generation("b200-180g", 0.51, 0.75, 0.82, 2.0e-6),
    "sm120": Generation("rtxpro6000-96g", 0.82, 0.75, 0.85, 1.8e-6),
    "gfx90a": Generation("mi210-64g", 0.72, 0.75, 0.80, 2.0e-6, 104),
    "gfx94": Generation("mi300x-192g", 0.54, 0.75, 0.75, 2.0e-6, 304),
    "gaudi": Generation("gaudi2-96g", 0.92, 0.75, 0.80, 4.0e-6, 24),
    "cpu": Generation("cpu", 0.05, 0.50, 0.70, 1.0e-6, 56),
}

# Of one multiprocessor, read and written, of a kernel whose tensors lie in L2: 4,757 GB/s of the 142 of an L40 with
# 64 MiB (te42kyfo/gpu-benches gpu-small-kernels, l40_pt.txt). A 4090 copies 16 MiB at 3,645 GB/s, its launch included
# (smallscientist1/cuda_microbenchmark, analysis_RTX4090.md). Of RTX Blackwell no such measurement was seen.
L2_BYTES_PER_SECOND = 33.5e9
# Families of which nobody measured a kernel but large products: what streams and small kernels take is guessed.
DERIVED = ("gaudi", "cpu")

# What a card's product_efficiency is by that of the card which stands in where nobody measured it: 23 of the 25 cards
# of which both are known lie between (docs/kernels.md). What a card keeps up hangs on its power and clocks, which no
# other fact of a profile tells: RTX 4090 1.40, RTX 3090 1.33, H100 PCIe 0.78; A10, of 150 W, has 0.57, and the RTX 4070
# Ti SUPER 1.44.
STANDS_IN = (0.77, 1.40)

# Share of the line rate that the ring of a large collective reaches on the wire (nccl-tests' bus bandwidth), within
# a socket and across them. NVLink: 0.78 A100, 0.81 H200, 0.75 B200 (stas00/ml-engineering, microsoft/superbenchmark);
# xGMI: MI300X, eight GPUs; PCIe: MooreThreads/SimuMax, A100 PCIe by two, four and eight; through the host:
# NVIDIA/nccl issue 1639, RTX 5090 by four and eight. Ethernet (Gaudi) and memory (CPU) have no rows.
LINKS = {
    "nvlink": (0.79, 0.79), "xgmi": (0.75, 0.75), "pcie": (0.69, 0.43), "pcie through the host": (0.55, 0.44),
    "ethernet": (0.75, 0.75), "memory": (0.50, 0.50), "none": (1.0, 1.0),
}  # fmt: skip
# The same between nodes. InfiniBand: 46 to 48 of 50 GB/s a port (NVIDIA/nccl-tests issue 290), DGX A100 192 of 200
# (NVIDIA/nccl issue 1576). EFA: 365 of 400 (stas00/ml-engineering). RoCE: 0.73 to 0.90 on one port (google/dranet),
# 340 of 400 (NVIDIA/nccl issue 1218).
NETWORKS = {"infiniband": 0.93, "roce": 0.82, "efa": 0.91, "ethernet": 0.82, "none": 1.0}


class Tcp(NamedTuple):
    """What GPUs reach where the host's CPU copies for them, into sockets.

    Attributes:
        share: Of the line rate, by the GPUs of a node of several.
        alone: Of the line rate, by nodes of one GPU.
        share_range: The least and most of `share` that were measured, by it.
        alone_range: The same of `alone`; the least is that of a node of several, as no source has another cloud's.
        full_to: Bytes/s of a node up to which `share` and `alone` hold.
        less_from: Bytes/s of a node from which they are `less` of that; between them by the logarithm of the rate.
        less: What is left of the shares there.
    """

    share: float
    alone: float
    share_range: tuple[float, float]
    alone_range: tuple[float, float]
    full_to: float
    less_from: float
    less: float


# Eight GPUs a node: 14.5 to 22.9 of 32 Gb/s, one: 30.4 to 31.4 (NVIDIA/nccl issue 209, NCCL 2.4.7); four: 13.6 of 25
# (NVIDIA/nccl-tests issue 83, 2.9.6). At 100 Gb/s eight reach 4 to 6 GB/s (NVIDIA/nccl issue 450), 41 Gb/s (issue 209).
TCP = Tcp(0.60, 0.96, (0.75, 1.20), (0.62, 1.02), 32e9 / 8, 100e9 / 8, 0.67)


class Contention(NamedTuple):
    """What a collective takes from the kernels that run beside it: processors for its channels, and bandwidth.

    Attributes:
        slowdown: By which share of their own time they take longer.
        bytes_per_second: Wire rate of one GPU from which it is that much; below it, in proportion.
    """

    slowdown: float
    bytes_per_second: float


# Slowdown: mean over GPT and LLaMA on four A100, H100, MI210 and MI250 inside a node, at most 0.40 (arXiv 2507.03114).
# Rate: NCCL takes as many processors as the platform's speed needs and shares none of them, 16 (of A100's 108, which
# is 0.17) at 190 GB/s and 2 at 12 to 24 GB/s (NVIDIA/nccl issue 689). That a collective is slowed too is not counted:
# its kernels hold their processors, and no source says by how much.
CONTENTION = Contention(0.189, 190e9)


class HostCosts(NamedTuple):
    """What the host's cores cost and do.

    Attributes:
        dispatch_seconds: One eager operator, forward.
        backward_dispatch_seconds: One operator that autograd calls.
        view_seconds: One operator without a kernel.
        module_seconds: One call of a module that holds parameters, in a forward, beside its operators.
        collective_dispatch_seconds: One call of torch.distributed.
        hook_seconds: ZeRO-3's hooks of one module in one pass.
        core_bytes_per_second: What one core moves in CPU Adam.
    """

    dispatch_seconds: float
    backward_dispatch_seconds: float
    view_seconds: float
    module_seconds: float
    collective_dispatch_seconds: float
    hook_seconds: float
    core_bytes_per_second: float


# As a virtual machine beside an H200 showed (Xeon of 2023; DeepSpeed 0.19.8, torch 2.11, transformers 5.23): steps of
# eight tokens, in which time is the host's (benchmarks/gpu_speed_host.json, docs/gpu.md). An operator from Python takes
# 11 us (7.5 in a loop without modules), one that autograd calls 22, a view 2.5, a module that holds parameters 50
# in a forward (nn.Module's, Hugging Face's and peft's Python, cuBLAS's own call), ZeRO-3's hooks of one 460: so of ten
# forwards and backwards nine are told within 15 %, and the tenth, which was unsteady, within a half. Not all hosts are
# as slow: see FAST_HOST of dsgen.cost.steps.
# Collective: between nccl-tests' 13 to 18 us and torch's 40 us for the smallest all_reduce.
# Core: CPU Adam with one thread a rank, 0.225e9 elements/s (deepspeedai/DeepSpeed issue 6834) of 28 bytes. That is of a
# whole step, with scaling and cast in it (0.6 of 4.4 ns); as Adam's alone (7.3e9) steps beside an H200 were told 10 to
# 22 % too short instead of 4 to 16 (docs/gpu.md).
HOST = HostCosts(11e-6, 22e-6, 2.5e-6, 50e-6, 25e-6, 460e-6, 6.3e9)
