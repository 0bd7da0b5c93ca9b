"""How long the host takes: to dispatch operators, to copy, to run Adam on its cores, to read and write its drives."""

from __future__ import annotations

from dsgen.kernels.measured_facts import HOST
from dsgen.kernels.rates import Rates

__all__ = ["LAUNCHERS", "USUAL_LAUNCHER", "copy_seconds", "cpu_adam_seconds", "dispatch_seconds", "four_bit_seconds",
           "gathered_seconds", "hook_seconds",
           "host_traffic_seconds", "new_memory_seconds", "nvme_seconds", "threads_per_rank"]  # fmt: skip

# Operators that the host could launch while bitsandbytes' Python is at a 4-bit layer in one pass (checks, an
# autograd.Function, two custom operators), its three launches not counted: 88 us forward and 50 backward with
# bitsandbytes 0.50 and torch 2.11 (benchmarks/host_costs.py), on the host that an operator's 11 us are of.
FOUR_BIT_OPERATORS = 6.0
# What ZeRO-3 costs the host for a tensor that it gathers, in one call with others: Python of its status and places, and
# a share of each rank, which it cuts out for itself before it joins them (runtime/zero/partition_parameters.py,
# AllGatherCoalescedHandle.wait). For one more of a leaf module's the thread took 32, 37 and 52 us on 2, 4 and 8 ranks,
# the mean of forward and backward (benchmarks/older_experts.py: DeepSpeed 0.19.8 over gloo, torch 2.13), where the
# hooks of a layer take 127 us (benchmarks/host_costs.py) and beside the H200 that HOST is of 225: so 1.77 times that.
GATHERED_TENSOR_SECONDS, GATHERED_SHARE_SECONDS = 45e-6, 6e-6
# Shares of the link's line rate: pinned 0.86 of PCIe 5 on H200 (stas00/ml-engineering), 0.78 of PCIe 4 on A100 (NVIDIA
# developer forum 352186), where copies in fell to 0.43 of that while others ran out. Pageable: the host copies once
# more through a pinned buffer; derived.
PINNED_SHARE = 0.82
PAGEABLE_SHARE = 0.35
BOTH_SHARE = 0.43
COPY_SECONDS = 10e-6  # an asynchronous copy's fixed cost: launch, and the engine's start; derived from a launch of 3 us
# What one core moves in torch's casts from fp32 to bf16 (23.2 GB/s) and copies (25.5); scaling in place reaches 40:
# torch 2.13, one thread, 800 MB, EPYC of 2023, measured for this project.
CORE_STREAM_BYTES_PER_SECOND = 23e9
# Memory that the kernel gives anew, as who writes it first has it: 1.5 us a page of 4 KiB, for 200e6 elements take
# 0.15 s longer to be cast from fp32 into 400 MB of it than into used memory (torch 2.13, glibc, Linux 6.18, one thread,
# measured for this project). Two threads with a core each take half of it (0.071 s): threads clear pages at once, of a
# rank that has cores of its own. Why threads of eight ranks on the same cores gain nothing is not known: it was taken
# for Llama-3.1-8B at stage 3 on eight H200 and B200 (stas00/ml-engineering, `deepspeed` without a word of cores), where
# 2 GB a rank took about 0.9 s a step.
NEW_MEMORY_BYTES_PER_SECOND = 2.7e9
ADAM_BYTES = 28  # read and written weight and moments, read gradient, fp32
# Of the RAM's peak bandwidth that CPU Adam reaches with enough threads: 285 of 384 GB/s on Grace (DeepSpeed's
# superoffload_grace_adam.png).
HOST_MEMORY_SHARE = 0.74
# Of that where no rank is bound to cores, so that its threads run on those of others and far from its memory: a step of
# Qwen2.5-3B on two A100 takes 2.89 (DeepSpeed blogs/zenflow-corebinding) and 3.08 s (pull request 7474), and bound 2.50
# and 2.38, of which 0.76 are not the host's work.
UNBOUND_SHARE = 0.77
NVME_SHARE = (
    0.85  # of the drives' rating: 2.9 of 3.25 GB/s with one, 10.1 of 13 with four (DeepSpeed, DeepNVMe 08-2024)
)
LAUNCHERS = ("deepspeed", "bound", "torchrun")
USUAL_LAUNCHER = "torchrun"  # where nobody says it


def dispatch_seconds(
    rates: Rates, operators: float, *, phase: str = "forward", views: float = 0, modules: float = 0
) -> float:
    """What the host needs to launch eager operators.

    Args:
        rates: The node.
        operators: Those that launch a kernel.
        phase: forward (from Python) or backward (from autograd's C++).
        views: Those that launch none.
        modules: Calls of modules that hold parameters, from which forward launches them.
    """
    each = rates.dispatch_seconds if phase == "forward" else rates.backward_dispatch_seconds
    return operators * each + views * rates.view_seconds + modules * rates.module_seconds


def four_bit_seconds(rates: Rates, layers: float) -> float:
    """What bitsandbytes' Python costs the host in one pass over linear layers in 4 bits, beside their operators."""
    return layers * FOUR_BIT_OPERATORS * rates.dispatch_seconds


def hook_seconds(rates: Rates, modules: float) -> float:
    """What ZeRO-3's hooks cost the host in one pass over modules that hold parameters."""
    return modules * rates.hook_seconds


def gathered_seconds(rates: Rates, tensors: int, ranks: int) -> float:
    """What tensors that ZeRO-3 gathers together cost the host in one pass, beside the hooks of their module."""
    each = GATHERED_TENSOR_SECONDS + GATHERED_SHARE_SECONDS * ranks
    return tensors * each * rates.hook_seconds / HOST.hook_seconds


def copy_seconds(
    rates: Rates, size_bytes: float, *, pinned: bool = True, direction: str = "to_device", both: bool = False
) -> float:
    """One copy between a GPU and its host.

    Args:
        rates: The node.
        size_bytes: What is copied.
        pinned: Whether the host's memory is page-locked.
        direction: to_device or to_host.
        both: Whether the other direction is busy at once.
    """
    share = PINNED_SHARE if pinned else PAGEABLE_SHARE
    if both and direction == "to_device":
        share *= BOTH_SHARE
    return size_bytes / (rates.host_link_bytes_per_second * share) + COPY_SECONDS


def threads_per_rank(rates: Rates, ranks_per_node: int, launcher: str) -> float:
    """OpenMP threads that a rank has for itself.

    torchrun and accelerate set OMP_NUM_THREADS=1 where several ranks share a node; the deepspeed launcher leaves it,
    so that all ranks take all cores, and with --bind_cores_to_rank gives each its share.
    """
    if launcher == "torchrun" and ranks_per_node > 1:
        return 1.0
    return max(1.0, rates.cpu_cores / ranks_per_node)


def cpu_adam_seconds(
    rates: Rates,
    elements: float,
    *,
    ranks_per_node: int,
    bytes_per_element: float = ADAM_BYTES,
    launcher: str = "torchrun",
) -> float:
    """DeepSpeed's Adam on the host's cores, all ranks of a node at once.

    Args:
        rates: The node.
        elements: What one rank updates.
        ranks_per_node: Ranks that share the node.
        bytes_per_element: What is read and written for one.
        launcher: One of `LAUNCHERS`; decides the threads of a rank.
    """
    return elements * bytes_per_element / _host_speed(rates, rates.core_bytes_per_second, ranks_per_node, launcher)


def host_traffic_seconds(rates: Rates, size_bytes: float, *, ranks_per_node: int, launcher: str = "torchrun") -> float:
    """An element-wise operator on the host's cores, all ranks of a node at once.

    Args:
        rates: The node.
        size_bytes: What one rank reads and writes.
        ranks_per_node: Ranks that share the node.
        launcher: One of `LAUNCHERS`; decides the threads of a rank.
    """
    return size_bytes / _host_speed(rates, CORE_STREAM_BYTES_PER_SECOND, ranks_per_node, launcher)


def new_memory_seconds(
    rates: Rates, size_bytes: float, *, ranks_per_node: int, launcher: str = USUAL_LAUNCHER
) -> float:
    """What a rank's first writes to memory take that the kernel gives it anew, beside the writing.

    glibc gives large blocks back when they are freed, so a large temporary tensor is new memory each time.

    Args:
        rates: The node.
        size_bytes: Of the tensor.
        ranks_per_node: Ranks that share the node.
        launcher: One of `LAUNCHERS`; decides the cores that a rank has for itself.
    """
    if launcher == "deepspeed" and ranks_per_node > 1:
        return size_bytes / NEW_MEMORY_BYTES_PER_SECOND
    return size_bytes / _host_speed(rates, NEW_MEMORY_BYTES_PER_SECOND, ranks_per_node, launcher)


def _host_speed(rates: Rates, core: float, ranks_per_node: int, launcher: str) -> float:
    """Bytes/s that a rank's threads move, `core` each, as far as the memory goes that its buffers lie in.

    A page lies in the NUMA domain of the thread that touched it first, and page-locked buffers are touched by the one
    that asks for them: a rank has the bandwidth of one domain, or its share of one where several ranks are in it.
    """
    memory = rates.host_memory_bytes_per_second * HOST_MEMORY_SHARE / max(ranks_per_node, rates.numa_domains)
    if launcher == "deepspeed" and ranks_per_node > 1:
        memory *= UNBOUND_SHARE
    return min(threads_per_rank(rates, ranks_per_node, launcher) * core, memory)


def nvme_seconds(rates: Rates, size_bytes: float, direction: str) -> float:
    """Reading or writing what all ranks of a node have on its drives.

    Args:
        rates: The node.
        size_bytes: Of all its ranks.
        direction: read or write.
    """
    speed = rates.nvme_read_bytes_per_second if direction == "read" else rates.nvme_write_bytes_per_second
    return size_bytes / max(speed * NVME_SHARE, 1.0)
