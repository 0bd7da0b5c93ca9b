"""How long a collective takes: rings over the slowest link they cross, their hops, and the protocols of NCCL."""

from __future__ import annotations

import math

from dsgen.kernels.measured_facts import CONTENTION
from dsgen.kernels.rates import Link, Rates

__all__ = ["KINDS", "collective_lines", "collective_seconds", "contention", "takes_turns"]

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
RINGS = ("all_gather", "reduce_scatter")

# NCCL src/graph/tuning.cc (2.18 to 2.27): baseLat of a ring; and what a hop takes beside that of LL128 (hwLat), which
# is a profile's latency.
BASE_SECONDS = {"LL": 6.6e-6, "LL128": 14.0e-6, "Simple": 8.4e-6}
HOP_MORE_SECONDS = {
    "nvlink": {"LL": -1.3e-6, "LL128": 0.0, "Simple": 1.5e-6},
    "pcie": {"LL": -1.5e-6, "LL128": 0.0, "Simple": 3.2e-6},
    "network": {"LL": -1.3e-6, "LL128": 0.0, "Simple": 10.0e-6},
}
# Fitted on the sweeps of A100 (microsoft/superbenchmark) and H100 (aws-samples): a kernel's start, and that its
# channels fill and drain; and the share of bandwidth that a protocol's flags leave (LL: llMaxBws in tuning.cc).
START_SECONDS = {"LL": 15e-6, "LL128": 15e-6, "Simple": 60e-6}
PROTOCOL_SHARE = {"LL": 0.25, "LL128": 0.5, "Simple": 1.0}
# NVLink SHARP, all_reduce inside the switch of eight GPUs: of line rate (H100 and H200 480 of 450, B200 840 of 900
# GB/s), its start, fitted on H100's sweep, and its hops, to the switch and back.
SWITCHED = {"sm90": 1.05, "sm100": 0.94}
SWITCHED_START_SECONDS = 45e-6
SWITCHED_HOPS = 2
# One ring over many nodes, as all_gather and reduce_scatter take (all_reduce adds inside a node first): of line rate on
# 32 nodes of H100 at 2 GiB, where all_reduce has 0.85 (NVIDIA/nccl issue 1218); up to 8 nodes nothing of it is known.
# Over TCP nobody measured it: Ray's GPT-J is as fast on 32 nodes as on 16, each of one T4 (docs/unseen.md).
RING_SHARE = 0.50
RING_NODES, RING_MANY_NODES = 8, 32
SOCKET = 4  # GPUs of a PCIe node that one socket joins
TAKES_TURNS = 3  # ZeRO's stage at which collectives and kernels take turns
SWITCHED_FROM = 5  # GPUs of a node from which NCCL prefers it


def collective_seconds(
    rates: Rates, kind: str, size_bytes: float, ranks: int, ranks_per_node: int, *, groups_per_node: int = 1
) -> float:
    """One call.

    Args:
        rates: The node and its network.
        kind: One of `KINDS`.
        size_bytes: The whole tensor: of all_gather the gathered one, of reduce_scatter the one before it, of all_to_all
            what one rank holds.
        ranks: Ranks that take part.
        ranks_per_node: How many of them are in one node.
        groups_per_node: How many groups of a node do the same at once and share its network.
    """
    lines = collective_lines(rates, kind, ranks, ranks_per_node, groups_per_node)
    return min([start + size_bytes * each for start, each in lines])


def collective_lines(
    rates: Rates, kind: str, ranks: int, ranks_per_node: int, groups_per_node: int = 1
) -> tuple[tuple[float, float], ...]:
    """The ways in which a collective may go: seconds of a call, and of each byte; the quickest is taken."""
    if ranks <= 1:
        return ((0.0, 0.0),)
    inside = min(ranks, ranks_per_node)
    nodes = -(-ranks // inside)
    if kind == "all_to_all":
        start = _exchange_seconds(rates, 0.0, ranks, inside, groups_per_node)
        return ((start, _exchange_seconds(rates, 1.0, ranks, inside, groups_per_node) - start),)
    passes = 2 if kind == "all_reduce" else 1
    wire = passes * (1.0 if kind == "broadcast" else (ranks - 1) / ranks)
    speed = _speed(rates, kind, inside, nodes, groups_per_node)
    between = passes * (nodes - 1)
    within = passes * (ranks - 1) - between
    lines = [
        (
            BASE_SECONDS[protocol]
            + START_SECONDS[protocol]
            + within * _hop(rates.intra, protocol)
            + between * _hop(rates.inter, protocol, network=True),
            wire / (speed * PROTOCOL_SHARE[protocol]),
        )
        for protocol in _protocols(rates, nodes)
    ]
    if nodes == 1 and _switched(rates, kind, inside):
        switch = SWITCHED_START_SECONDS + BASE_SECONDS["Simple"] + SWITCHED_HOPS * _hop(rates.intra, "Simple")
        lines.append((switch, wire / (rates.intra.bytes_per_second * SWITCHED[rates.architecture])))
    return tuple(lines)


def takes_turns(stage: int) -> bool:
    """Whether collectives and kernels of a ZeRO stage hide nothing of each other, on whatever streams they run.

    Measured, and not understood to its ground: 54 published runs of 175B to 2T parameters at stage 3 (DeepSpeed's blog
    on Azure) take what kernels and collectives take one after the other, and so do most others (docs/speed.md), though
    DeepSpeed 0.19.8 gathers on a stream of its own. Stages 1 and 2 with `overlap_comm` do hide theirs.
    """
    return stage == TAKES_TURNS


def contention(rates: Rates, kind: str, ranks: int, ranks_per_node: int, *, groups_per_node: int = 1) -> float:
    """How much longer the kernels of a GPU take while one of its collectives runs, by their own time.

    Args:
        rates: The node and its network.
        kind: One of `KINDS`.
        ranks: Ranks that take part.
        ranks_per_node: How many of them are in one node.
        groups_per_node: How many groups of a node do the same at once and share its network.
    """
    if ranks <= 1:
        return 0.0
    inside = min(ranks, ranks_per_node)
    speed = _speed(rates, kind, inside, -(-ranks // inside), groups_per_node)
    return CONTENTION.slowdown * min(1.0, speed / CONTENTION.bytes_per_second)


def _exchange_seconds(rates: Rates, size_bytes: float, ranks: int, inside: int, groups: int) -> float:
    """all_to_all: every rank sends each other one its part, those of a node share its way out."""
    own = rates.intra.bytes_per_second * (rates.intra.share if inside <= SOCKET else rates.intra.share_across)
    within = size_bytes * (inside - 1) / ranks / max(own, 1.0)
    start = BASE_SECONDS["Simple"] + START_SECONDS["Simple"]
    if ranks == inside:
        return start + _hop(rates.intra, "Simple") + within
    out = rates.inter.bytes_per_second * _share_between(rates, inside, groups) / groups
    between = inside * size_bytes * (ranks - inside) / ranks / max(out, 1.0)
    return start + _hop(rates.inter, "Simple", network=True) + max(within, between)


def _switched(rates: Rates, kind: str, inside: int) -> bool:
    """Whether the NVLink switch adds: NVLink SHARP, all_reduce only."""
    wide = rates.intra.kind == "nvlink" and inside >= SWITCHED_FROM
    return kind == "all_reduce" and wide and rates.architecture in SWITCHED


def _protocols(rates: Rates, nodes: int) -> tuple[str, ...]:
    wide = rates.intra.kind == "nvlink" and nodes == 1
    return ("LL", "LL128", "Simple") if wide else ("LL", "Simple")


def _hop(link: Link, protocol: str, *, network: bool = False) -> float:
    sort = "network" if network else "pcie" if link.kind == "pcie" else "nvlink"
    return max(0.0, link.latency_seconds + HOP_MORE_SECONDS[sort][protocol])


def _far(nodes: int) -> float:
    """How far so many nodes are from few to many ones: 0 to 1, by their logarithm."""
    far = math.log(nodes / RING_NODES) / math.log(RING_MANY_NODES / RING_NODES)
    return min(1.0, max(0.0, far))


def _share_between(rates: Rates, inside: int, groups: int) -> float:
    """Of the network's rate, by how many ranks of a node send at once."""
    return rates.inter.share if inside * groups == 1 else rates.inter.share_across


def _speed(rates: Rates, kind: str, inside: int, nodes: int, groups: int) -> float:
    """Bytes/s at which the ring of large messages moves, over the slowest link that it crosses."""
    intra, inter = rates.intra, rates.inter
    share = intra.share if inside <= SOCKET else intra.share_across
    if nodes > 1 and _switched(rates, kind, inside):
        share = SWITCHED[rates.architecture]
    within = max(intra.bytes_per_second * share, 1.0)
    if nodes == 1:
        return within
    outside = _share_between(rates, inside, groups)
    between = max(inter.bytes_per_second * outside / groups, 1.0)
    if kind == "all_reduce" and nodes == 2:  # the tree sends each half once, the ring twice
        between *= 2 * (nodes * inside - 1) / (nodes * inside)
    if kind in RINGS and inter.direct:
        between *= (min(1.0, RING_SHARE / outside)) ** _far(nodes)
    return between if inside == 1 else min(within, between)
