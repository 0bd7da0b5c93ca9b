"""What AMD's kernel driver says of its cards in /sys/class/kfd: no library of ROCm is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsgen.detecting.proc import number, text

__all__ = ["ask"]

_NODES = "sys/class/kfd/kfd/topology/nodes"
_AMD = 0x1002  # PCI vendor; a node of the topology without one is a CPU
_VRAM = (1, 2)  # heap types of a memory bank: FB_PUBLIC and FB_PRIVATE (Linux, kfd_crat.h and kfd_topology.h)
_XGMI = 11  # type of a link (Linux, kfd_crat.h, CRAT_IOLINK_TYPE_XGMI)


def ask(root: Path = Path("/")) -> dict[str, Any] | None:
    """The cards that the driver shows; None where there is no such driver."""
    folder = root / _NODES
    if not folder.is_dir():
        return None
    nodes = {int(path.name): _properties(path / "properties") for path in folder.glob("[0-9]*")}
    cards = [node for node in sorted(nodes) if nodes[node].get("vendor_id") == _AMD and nodes[node].get("simd_count")]
    return {"gpus": [_card(root, folder / str(node), nodes[node], cards) for node in cards]}


def _properties(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    pairs = (line.split() for line in text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].lstrip("-").isdigit()}


def _card(root: Path, folder: Path, said: dict[str, int], cards: list[int]) -> dict[str, Any]:
    banks = (_properties(path / "properties") for path in folder.glob("mem_banks/[0-9]*"))
    links = [_properties(path / "properties") for path in sorted(folder.glob("io_links/[0-9]*"))]
    links += [_properties(path / "properties") for path in sorted(folder.glob("p2p_links/[0-9]*"))]
    place = said.get("location_id", 0)  # bus, device and function as PCI packs them
    address = f"{said.get('domain', 0):04x}:{place >> 8:02x}:{place >> 3 & 31:02x}.{place & 7}"
    pci = root / "sys/bus/pci/devices" / address
    speed = text(pci / "max_link_speed").split()
    return {
        "device": said.get("device_id"),
        "target": said.get("gfx_target_version"),
        "total_bytes": sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in _VRAM),
        "pcie_gigatransfers": float(speed[0]) if speed else None,
        "pcie_width": number(pci / "current_link_width"),
        "xgmi_to": sorted(
            {
                cards.index(link["node_to"])
                for link in links
                if link.get("type") == _XGMI and link.get("node_to") in cards
            }
        ),
        "xgmi_to_host": any(link.get("type") == _XGMI and link.get("node_to") not in cards for link in links),
    }
