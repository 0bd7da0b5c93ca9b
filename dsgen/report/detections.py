"""What a machine said of itself beside the profile of its cards, for a person."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen import catalog
from dsgen.catalog.detected import DetectedMachine
from dsgen.detecting import DetectedNode, Interface
from dsgen.report.wrapping import fit
from dsgen.shapes.layers import fold
from dsgen.shapes.units import BANDWIDTH, parse

__all__ = ["text"]

_GIB, _GB = 2**30, 10**9
_RAM, _DRIVE = "host_memory_bandwidth", "nvme_read_bandwidth"  # facts that only a measurement tells
_NEAR = 0.01  # of a bandwidth: profiles have the same numbers as link rates


def text(machine: DetectedMachine, written_to: str | None = None) -> str:
    """The summary, at most 80 columns, with a final newline."""
    node = machine.node
    lines = [
        f"{node.gpus} x {node.card.name if node.card else ''} on {node.host}: extends {machine.extends}",
        *_cards(machine),
        _host(node),
        *_interfaces(node),
    ]
    differ = [f"{fact.name} {fact.value}{f' (not {fact.was})' if fact.was else ''}" for fact in machine.facts]
    lines.append(f"differs from {machine.extends}: {', '.join(differ) or 'in nothing that was asked'}")
    if line := _unasked(machine):
        lines.append(line)
    if written_to:
        lines.append(f"wrote {written_to}. Next: dsgen plan --hw {written_to} --model ...")
    else:
        lines.append("Next: -o my-box.yaml, or --hw auto here")
    return "\n".join(line if line.startswith("wrote") else fit(line) for line in lines) + "\n"


def _unasked(machine: DetectedMachine) -> str:
    """What only a measurement tells, as the profile of the cards has it."""
    said = {fact.name: fact for fact in machine.facts}
    memory = machine.hardware.host_memory_bandwidth_bytes_per_second
    taken = [
        *([] if _RAM in said else [f"RAM of {memory / _GB:g} GB/s"]),
        *([] if _DRIVE in said else ["the speed of drives"]),
    ]
    tells = "--measure tells RAM and PCIe, --measure-drive FOLDER a drive"
    return f"taken from {machine.extends}, not asked: {' and '.join(taken)}; {tells}" if taken else ""


def _cards(machine: DetectedMachine) -> Iterator[str]:
    node, card = machine.node, machine.node.card
    if card is None:
        return
    links = {"nvlink": "NVLink", "xgmi": "xGMI", "pcie": "PCIe alone"}
    joined = f", joined by {links[card.link]}" if card.link else ""
    if card.link_bytes_per_second:
        joined += f" of {card.link_bytes_per_second / _GB:.4g} GB/s"
    if card.partly_linked:
        joined += ", with links between some of them"
    hidden = f"; {node.hidden} more are hidden from this program" if node.hidden else ""
    yield f"GPU   {card.usable_bytes / _GIB:.2f} GiB, {card.pcie or 'PCIe not told'}{joined}{hidden} ({node.driver})"


def _host(node: DetectedNode) -> str:
    sockets = f"{node.sockets} socket{'s' if node.sockets > 1 else ''}"
    cores = f"{node.cores} cores" if node.cores == node.all_cores else f"{node.cores} of {node.all_cores} cores"
    ram = f"{(node.memory_bytes or 0) / _GIB:,.1f} GiB"
    limited = " (the limit of this container or job)" if node.memory_limited else ""
    drives = f"local NVMe of {sum(node.drives) / 10**12:.3g} TB" if node.drives else "no local NVMe"
    name = f", {node.processor}" if node.processor else ""
    return f"host  {ram}{limited}, {cores}, {sockets}{name}; {drives}"


def _interfaces(node: DetectedNode) -> Iterator[str]:
    if not node.interfaces:
        yield "net   no interface tells its speed: for several nodes name the network with --network"
        return
    listed = ", ".join(f"{one.count} x {one.kind} {one.gbits:g} Gb/s" for one in node.interfaces)
    best = max(node.interfaces, key=lambda one: one.count * one.gbits)
    yield f"net   {listed}{_named(best)}"


def _named(interface: Interface) -> str:
    """The network profile that such interfaces are, to be named where there are several nodes."""
    wanted = interface.count * interface.gbits * 1e9 / 8
    for name in catalog.names("network"):
        tree = fold([catalog.find("network", name).layer]).tree["network"]
        rate = parse(tree["bandwidth"], BANDWIDTH)
        if tree["fabric"] == interface.kind and abs(rate - wanted) <= _NEAR * wanted:
            return f"; for several nodes: --network {name}"
    return "; for several nodes name the network with --network (dsgen profiles list network)"
