"""The node that raw answers describe: its one kind of card, what joins the cards, the host and its interfaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from dsgen.detecting.answers import Answers
from dsgen.detecting.cards import profile_of
from dsgen.detecting.shown import check_equal, check_whole, shown_cards
from dsgen.shapes.value import Value

__all__ = ["Accelerator", "DetectedNode", "Interface", "node"]

_NOT_LOCAL = ("Elastic Block Store", "nvme_card-pd", "MSFT NVMe Accelerator")  # network volumes of clouds, seen as NVMe


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Accelerator(Value):
    """One card of the node; all of a node are equal.

    Attributes:
        name: What its driver calls it.
        profile: The built-in hardware profile of it; None where there is none.
        usable_bytes: What a program may take of its memory.
        total_bytes: All of it, as the driver tells it.
        link: nvlink or xgmi where such links join all cards, pcie where not, None for one card.
        link_bytes_per_second: Of all links of a card of that kind, one direction; None where nobody tells.
        partly_linked: Whether such links join some cards and not all.
        pcie: Generation and lanes: "PCIe 4.0 x16"; empty where nobody tells, or where the host is joined otherwise.
        pcie_bytes_per_second: Of that, one direction.
        peer_access: Whether the cards read each other's memory; None where nobody tells.
    """

    name: str
    profile: str | None
    usable_bytes: int
    total_bytes: int
    link: str | None
    link_bytes_per_second: float | None
    partly_linked: bool
    pcie: str
    pcie_bytes_per_second: float | None
    peer_access: bool | None


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Interface(Value):
    """Equal interfaces to other nodes that are up.

    Attributes:
        kind: infiniband, roce, efa or ethernet.
        count: How many there are.
        gbits: What one carries, in Gb/s.
    """

    kind: str
    count: int
    gbits: float


@attrs.frozen(kw_only=True, repr=False, eq=False)
class DetectedNode(Value):
    """What a machine said of itself.

    Attributes:
        host, date: Whose answers these are, and of when.
        driver: Who told of the cards: "NVML, driver 550.54.15".
        gpus: Cards that a program here may use; 0 where there is none.
        hidden: Cards that a variable hides from it.
        card: One of them; None where there is none.
        memory_bytes: RAM that a program here may take; None where nobody tells.
        memory_limited: Whether a container or job takes less than there is.
        cores: Physical cores that it may use.
        all_cores: Those of the node.
        numa_domains: Parts of its RAM that have cores; 0 where nobody tells.
        sockets, processor: Sockets of the node, and what their maker calls the processor.
        drives: Bytes of each local NVMe drive.
        interfaces: What joins it to other nodes.
    """

    host: str
    date: str
    driver: str
    gpus: int
    hidden: int
    card: Accelerator | None
    memory_bytes: int | None
    memory_limited: bool
    cores: int
    all_cores: int
    numa_domains: int
    sockets: int
    processor: str
    drives: tuple[int, ...]
    interfaces: tuple[Interface, ...]


def node(answers: Answers) -> DetectedNode:
    """The node that answers describe.

    Raises:
        DsgenError: Cards that no driver tells of, a card in parts, or cards of several kinds.
    """
    cards, driver, every = shown_cards(answers)
    check_whole(cards)
    check_equal(cards)
    memory, cpus = answers["memory"], answers["cpus"]
    limit, total = memory["limit_bytes"], memory["total_bytes"]
    limited = limit is not None and total is not None and limit < total
    return DetectedNode(
        host=answers["host"],
        date=answers["date"],
        driver=driver,
        gpus=len(cards),
        hidden=every - len(cards),
        card=_accelerator(cards) if cards else None,
        memory_bytes=limit if limited else total,
        memory_limited=limited,
        cores=cpus["allowed_cores"],
        all_cores=cpus["cores"],
        numa_domains=cpus.get("numa_domains", 0),
        sockets=cpus["sockets"],
        processor=cpus["name"],
        drives=tuple(one["bytes"] for one in answers["disks"] if not any(word in one["model"] for word in _NOT_LOCAL)),
        interfaces=tuple(_interfaces(answers["interfaces"])),
    )


def _accelerator(cards: Sequence[Mapping[str, Any]]) -> Accelerator:
    """One card for all: of what differs between equal cards, such as the lanes of their slots, the least."""
    first = cards[0]
    slowest = min(cards, key=lambda card: card["pcie_rate"] or float("inf"))
    rates = [card["link_rate"] for card in cards if card["link_rate"]]
    linked = any(card["linked"] for card in cards)
    joined = linked and _reached(cards) == len(cards)
    several = len(cards) > 1
    reads = [card["reads"] for card in cards]
    return Accelerator(
        name=first["name"],
        profile=profile_of(first["name"]),
        usable_bytes=min(card["usable"] for card in cards),
        total_bytes=min(card["total"] for card in cards),
        link=(first["link"] if joined else "pcie") if several else None,
        link_bytes_per_second=min(rates) if joined and len(rates) == len(cards) else None,
        partly_linked=linked and not joined,
        pcie=slowest["pcie"],
        pcie_bytes_per_second=slowest["pcie_rate"],
        peer_access=None if not several or None in reads else all(len(one) == len(cards) - 1 for one in reads),
    )


def _reached(cards: Sequence[Mapping[str, Any]]) -> int:
    """How many cards links reach from the first: all of them means that a ring of links joins all."""
    linked = {card["index"]: card["linked"] for card in cards}
    seen: set[int] = set()
    ahead = [cards[0]["index"]]
    while ahead:
        number = ahead.pop()
        if number not in seen:
            seen.add(number)
            ahead += linked[number]
    return len(seen)


def _interfaces(said: Sequence[Mapping[str, Any]]) -> list[Interface]:
    """RDMA ports where there are any, else Ethernet: a node talks over the best it has."""
    kinds = {"infiniband": "infiniband", "ethernet": "roce", "efa": "efa", "net": "ethernet"}
    counts: dict[tuple[str, float], int] = {}
    for one in said:
        if one["up"] and one["gbits"] and one["kind"] in kinds:
            key = (kinds[one["kind"]], float(one["gbits"]))
            counts[key] = counts.get(key, 0) + 1
    return [
        Interface(kind=kind, count=counts[kind, gbits], gbits=gbits) for kind, gbits in sorted(counts, reverse=True)
    ]
