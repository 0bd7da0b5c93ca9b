"""How long a collective takes: rings over the slowest link they cross, their hops, and the protocols of NCCL."""

from __future__ import annotations

from dsgen.kernels.rates import Link, Rates

__all__ = ["KINDS", "collective_seconds"]

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")

# NCCL src/graph/tuning.cc (2.18 to 2.27): baseLat and hwLat of a ring's hop, by protocol, in units of that of LL128;
# and the share of bandwidth that the protocol leaves to data.
BASE_SECONDS = {"LL": 6.6e-6, "LL128": 14.0e-6, "Simple": 8.4e-6}
HOP_OF_LL128 = {
    "nvlink": {"LL": 0.6 / 1.9, "LL128": 1.0, "Simple": 3.4 / 1.9},
    "pcie": {"LL": 1.0 / 2.5, "LL128": 1.0, "Simple": 5.7 / 2.5},
    "network": {"LL": 2.7 / 4.0, "LL128": 1.0, "Simple": 14.0 / 4.0},
}
PROTOCOL_SHARE = {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}
SWITCHED = {"sm90": 1.05, "sm100": 0.94}  # of line rate: all_reduce inside the NVLink switch, eight GPUs (NVLS)
SWITCHED_FROM = 5  # GPUs of a node from which NCCL prefers it


def collective_seconds(
    rates: Rates, kind: str, size_bytes: float, ranks: int, ranks_per_node: int, *, groups_per_node: int = 1
) -> float:
    """One call.

    Args:
        rates: The node and its network.
        kind: One of `KINDS`.
        size_bytes: The whole tensor: of all_gather the gathered one, of reduce_scatter the one before it.
        ranks: Ranks that take part.
        ranks_per_node: How many of them are in one node.
        groups_per_node: How many groups of a node do the same at once and share its network.
    """
    if ranks <= 1:
        return 0.0
    inside = min(ranks, ranks_per_node)
    nodes = -(-ranks // inside)
    factor = _passes(kind) * ((ranks - 1) / ranks if kind != "broadcast" else 1.0)
    speed = _wire(rates, kind, inside, nodes, groups_per_node)
    hops = _passes(kind) * (ranks - 1)
    between = _passes(kind) * (nodes - 1) if nodes > 1 else 0
    return min(
        BASE_SECONDS[protocol]
        + (hops - between) * _hop(rates.intra, protocol)
        + between * _hop(rates.inter, protocol, network=True)
        + size_bytes * factor / (speed * PROTOCOL_SHARE[protocol])
        for protocol in _protocols(rates, nodes)
    )


def _passes(kind: str) -> int:
    return 2 if kind == "all_reduce" else 1


def _protocols(rates: Rates, nodes: int) -> tuple[str, ...]:
    wide = rates.intra.kind == "nvlink" and nodes == 1
    return ("LL", "LL128", "Simple") if wide else ("LL", "Simple")


def _hop(link: Link, protocol: str, *, network: bool = False) -> float:
    sort = "network" if network else "pcie" if link.kind == "pcie" else "nvlink"
    return link.latency_seconds * HOP_OF_LL128[sort][protocol]


def _wire(rates: Rates, kind: str, inside: int, nodes: int, groups: int) -> float:
    """Bytes/s at which each rank's share of the ring moves."""
    intra, inter = rates.intra, rates.inter
    share = intra.share
    if kind == "all_reduce" and intra.kind == "nvlink" and inside >= SWITCHED_FROM:
        share = SWITCHED.get(rates.architecture, share)
    within = max(intra.bytes_per_second * share, 1.0)
    if nodes == 1:
        return within
    between = max(inter.bytes_per_second * inter.share / groups, 1.0)
    return between if inside == 1 else min(within, between)
