"""Networks between nodes: what stands in where nobody names one, and what nodes of a GPU's reference system have."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from dsgen import catalog
from dsgen.catalog.structure import structure
from dsgen.jobs.job import Job
from dsgen.shapes.layers import fold
from dsgen.shapes.profiles import Hardware, Network

__all__ = ["ASSUMED_NETWORK", "NO_NETWORK", "alone", "assumed", "assumes", "counted_anew", "joined", "named",
           "reference"]  # fmt: skip

ASSUMED_NETWORK = "ethernet-25g"  # the slowest fabric still rented with GPUs: a plan made for it holds on a better one
NO_NETWORK = Network(fabric="none", bandwidth_bytes_per_second=0.0, latency_seconds=0.0, rdma=False)
_ASSUMED = "no network named for "
# Family of GPUs joined by NVLink or xGMI -> the network of its vendor's own system, an adapter for each GPU, by the
# datasheets of DGX A100 (ConnectX-6), DGX H100 and B200 (ConnectX-7), and of platforms with MI300X.
_OF_SYSTEMS = {
    "sm80": ("ib-hdr-1600g", "an adapter of 200 Gb/s for each GPU, as a DGX A100 has"),
    "sm90": ("ib-ndr-3200g", "an adapter of 400 Gb/s for each GPU, as a DGX H100 has"),
    "sm100": ("ib-ndr-3200g", "an adapter of 400 Gb/s for each GPU, as a DGX B200 has"),
    "gfx94": ("roce-3200g", "an adapter of 400 Gb/s for each GPU, as platforms with MI300X have"),
}
_OTHERWISE = "ib-hdr-200g", "an adapter of 200 Gb/s a node"
_PCIE = "pcie"


def assumed(nodes: int) -> str:
    """The warning that nobody named a network."""
    return f"{_ASSUMED}{nodes} nodes: assumed {ASSUMED_NETWORK}; name yours with --network"


def assumes(job: Job) -> bool:
    """Whether the network of a job is assumed."""
    return job.nodes > 1 and any(said.startswith(_ASSUMED) for said in job.warnings)


def counted_anew(warnings: Iterable[str], before: int, nodes: int) -> tuple[str, ...]:
    """The warnings of a job for another number of nodes; one node has no network that is assumed."""
    kept = (said for said in warnings if nodes > 1 or not said.startswith(_ASSUMED))
    return tuple(assumed(nodes) if said == assumed(before) else said for said in kept)


def alone(job: Job) -> Job:
    """The job on one of its nodes, which has no network."""
    names = {kind: name for kind, name in job.names.items() if kind != "network"}
    warnings = counted_anew(job.warnings, job.nodes, 1)
    return attrs.evolve(job, nodes=1, network=NO_NETWORK, names=names, warnings=warnings)


def named(name: str) -> Network:
    """A network profile's facts."""
    layer = fold([catalog.find("network", name).layer])
    return structure(Network, "network", layer.tree, layer.provenance)


def reference(hardware: Hardware) -> tuple[str, str]:
    """The network that nodes of these GPUs have in their vendor's own system, or a usual one, and what it is."""
    from dsgen.kernels.architectures import architecture  # most jobs name their network, and a lint has none

    joined_by = hardware.intra_node_link
    return _OTHERWISE if joined_by.startswith(_PCIE) else _OF_SYSTEMS.get(architecture(hardware).name, _OTHERWISE)


def joined(job: Job, name: str) -> Job:
    """The job over another network, which somebody named."""
    warnings = tuple(said for said in job.warnings if not said.startswith(_ASSUMED))
    return attrs.evolve(job, network=named(name), names={**job.names, "network": name}, warnings=warnings)
