"""What one node does, all in SI units: the rates that the laws of kernels are computed from."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dsgen.kernels.architectures import architecture, multiprocessors
from dsgen.kernels.measured_facts import GENERATIONS, HOST, L2_BYTES_PER_SECOND, LINKS, NETWORKS, TCP

if TYPE_CHECKING:
    from dsgen.shapes.profiles import Hardware, Network

__all__ = ["Link", "Rates", "over_tcp", "rates"]


class Link(NamedTuple):
    """What joins the GPUs of a node, or the nodes.

    Attributes:
        kind: nvlink, xgmi, pcie, ethernet, memory, none; infiniband, roce, efa, ethernet between nodes.
        bytes_per_second: Line rate, one direction: of one GPU inside a node, of one node between nodes.
        share: Share of it that the ring of a large collective reaches on the wire; between nodes of one rank each.
        share_across: The same where its ranks span the sockets of a node; between nodes where ranks of one share it.
        latency_seconds: One hop of a ring, in the protocol LL128 of NCCL.
        direct: GPUs reach each other (peer-to-peer, RDMA) without the host's copying.
    """

    kind: str
    bytes_per_second: float
    share: float
    share_across: float
    latency_seconds: float
    direct: bool


class Rates(NamedTuple):
    """One kind of node, as the laws of kernels read it. Plain numbers, so that it can be sent as JSON.

    Attributes:
        architecture: Family of the GPUs: sm70 ... sm120, gfx90a, gfx94, gaudi, cpu.
        processors: Multiprocessors or compute units of one GPU.
        bf16_flops_per_second: Dense peak; 0 where there is none. The other peaks likewise.
        product_efficiency: Share of the 16-bit peak that large products keep up.
        sustained: The same by that of the card on which its family's other kernels were measured: what power leaves.
        fp32_efficiency: The same of fp32 outside tensor cores.
        memory_bytes_per_second: Peak bandwidth of one GPU's memory.
        memory_efficiency: Share of it that large streams reach.
        l2_cache_bytes: L2 cache of one GPU; 0 where it is little faster than the memory.
        l2_bytes_per_second: What kernels move whose tensors lie there.
        kernel_seconds: Shortest time that a kernel takes on the device, its launch behind another one included.
        dispatch_seconds: What an eager operator costs the host forward.
        backward_dispatch_seconds: The same backward, where autograd's C++ calls it.
        view_seconds: What an operator costs the host that launches no kernel (view, transpose, slice).
        module_seconds: What a call of a module that holds parameters costs the host forward, beside its operators.
        collective_dispatch_seconds: What one call of torch.distributed costs the host.
        hook_seconds: What ZeRO-3 costs the host for one module in one pass: fetch, wait and release.
        host_link_bytes_per_second: Line rate between one GPU and the host, one direction.
        host_memory_bytes_per_second: Peak bandwidth of the node's RAM.
        cpu_cores: Physical cores of the node.
        numa_domains: Parts of the node's RAM, each with its share of the bandwidth.
        core_bytes_per_second: What one core moves in CPU Adam.
        nvme_read_bytes_per_second: All drives of the node together; 0 where there are none. Writes likewise.
        gpus_per_node: GPUs of a full node.
        intra: What joins the GPUs of a node.
        inter: What joins the nodes.
        nearest: Whose measurements stand in where this GPU has none of its own; None where it has.
    """

    architecture: str
    processors: int
    bf16_flops_per_second: float
    fp16_flops_per_second: float
    tf32_flops_per_second: float
    fp32_flops_per_second: float
    product_efficiency: float
    sustained: float
    fp32_efficiency: float
    memory_bytes_per_second: float
    memory_efficiency: float
    l2_cache_bytes: int
    l2_bytes_per_second: float
    kernel_seconds: float
    dispatch_seconds: float
    backward_dispatch_seconds: float
    view_seconds: float
    module_seconds: float
    collective_dispatch_seconds: float
    hook_seconds: float
    host_link_bytes_per_second: float
    host_memory_bytes_per_second: float
    cpu_cores: int
    numa_domains: int
    core_bytes_per_second: float
    nvme_read_bytes_per_second: float
    nvme_write_bytes_per_second: float
    gpus_per_node: int
    intra: Link
    inter: Link
    nearest: str | None

    def peak(self, dtype: str) -> float:
        """Dense FLOP/s of a dtype: bf16, fp16, tf32 or fp32; one that the GPU lacks runs as fp32."""
        peak = 0.0
        if dtype == "bf16":
            peak = self.bf16_flops_per_second
        elif dtype == "fp16":
            peak = self.fp16_flops_per_second
        elif dtype == "tf32":
            peak = self.tf32_flops_per_second
        return peak or self.fp32_flops_per_second

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, from which `from_json` makes the same value."""
        return {**self._asdict(), "intra": self.intra._asdict(), "inter": self.inter._asdict()}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "Rates":
        """What `to_json` told."""
        return cls(**{**told, "intra": Link(**told["intra"]), "inter": Link(**told["inter"])})


def rates(hardware: "Hardware", network: "Network") -> Rates:
    """The rates of a node and of the network it stands in.

    Args:
        hardware: The node; what its profile leaves open is taken from its family of GPUs.
        network: What joins the nodes.
    """
    name = architecture(hardware).name
    family = GENERATIONS[name]
    dispatch = _first(hardware.dispatch_seconds, HOST.dispatch_seconds)
    slower = dispatch / HOST.dispatch_seconds  # a core that is slow at one piece of Python is so at all
    product = _first(hardware.product_efficiency, family.product_efficiency)
    processors = multiprocessors(hardware) or family.processors
    return Rates(
        architecture=name,
        processors=processors,
        bf16_flops_per_second=hardware.bf16_flops_per_second,
        fp16_flops_per_second=hardware.fp16_flops_per_second,
        tf32_flops_per_second=hardware.tf32_flops_per_second,
        fp32_flops_per_second=hardware.fp32_flops_per_second,
        product_efficiency=product,
        sustained=product / family.product_efficiency,
        fp32_efficiency=family.fp32_efficiency,
        memory_bytes_per_second=hardware.memory_bandwidth_bytes_per_second,
        memory_efficiency=_first(hardware.memory_efficiency, family.memory_efficiency),
        l2_cache_bytes=hardware.l2_cache_bytes,
        l2_bytes_per_second=L2_BYTES_PER_SECOND * processors,
        kernel_seconds=family.kernel_seconds,
        dispatch_seconds=dispatch,
        backward_dispatch_seconds=HOST.backward_dispatch_seconds * slower,
        view_seconds=HOST.view_seconds * slower,
        module_seconds=HOST.module_seconds * slower,
        collective_dispatch_seconds=HOST.collective_dispatch_seconds,
        hook_seconds=HOST.hook_seconds * slower,
        host_link_bytes_per_second=hardware.host_link_bandwidth_bytes_per_second,
        host_memory_bytes_per_second=hardware.host_memory_bandwidth_bytes_per_second,
        cpu_cores=hardware.cpu_cores,
        numa_domains=hardware.numa_domains,
        core_bytes_per_second=HOST.core_bytes_per_second,
        nvme_read_bytes_per_second=hardware.nvme_read_bandwidth_bytes_per_second,
        nvme_write_bytes_per_second=hardware.nvme_write_bandwidth_bytes_per_second,
        gpus_per_node=hardware.gpus_per_node,
        intra=_intra(hardware),
        inter=_inter(network),
        nearest=None if hardware.product_efficiency is not None else family.measured_on,
    )


def _first(own: float | None, family: float) -> float:
    return family if own is None else own


def _intra(hardware: "Hardware") -> Link:
    kind = hardware.intra_node_link
    shared = kind == "pcie" and not hardware.peer_access
    share, across = LINKS["pcie through the host" if shared else kind]
    return Link(
        kind=kind,
        bytes_per_second=hardware.intra_node_bandwidth_bytes_per_second,
        share=share,
        share_across=across,
        latency_seconds=hardware.intra_node_latency_seconds,
        direct=not shared,
    )


def _inter(network: "Network") -> Link:
    alone, several = _over_tcp(network) if over_tcp(network) else (NETWORKS[network.fabric],) * 2
    return Link(
        kind=network.fabric,
        bytes_per_second=network.bandwidth_bytes_per_second,
        share=alone,
        share_across=several,
        latency_seconds=network.latency_seconds,
        direct=network.rdma,
    )


def over_tcp(network: "Network") -> bool:
    """Whether what goes between nodes goes through sockets, which the host's CPU copies into."""
    return network.fabric != "none" and not network.rdma


def _over_tcp(network: "Network") -> tuple[float, float]:
    """Share of the line rate that one rank of a node reaches, and that several do."""
    rate = max(network.bandwidth_bytes_per_second, TCP.full_to)
    faster = math.log(rate / TCP.full_to) / math.log(TCP.less_from / TCP.full_to)
    left = 1.0 - (1.0 - TCP.less) * min(faster, 1.0)
    return TCP.alone * left, TCP.share * left
