"""What Linux says of the host in /proc and /sys: RAM, cores, drives, interfaces and the cards on its PCI bus."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["cpus", "disks", "display_controllers", "interfaces", "memory", "number", "text"]

_KIB = 1024
_SECTOR_BYTES = 512  # /sys/block/*/size counts these, whatever the drive's own (Linux, block/stat.txt)
_DISPLAY = "0x03"  # PCI class of display controllers
_ACCELERATOR = "0x12"  # and of processing accelerators, as AMD's Instinct are
_NO_LIMIT_BYTES = 1 << 60  # cgroup v1 writes a number near 2^63 where there is no limit
_LIMITS = ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes")


def text(path: Path) -> str:
    """The content of a file of the kernel; empty where it is not there or says nothing."""
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return ""


def number(path: Path) -> int | None:
    """A whole number of the kernel; None where there is none."""
    with contextlib.suppress(ValueError):
        return int(text(path), 0)
    return None


def memory(root: Path) -> dict[str, int | None]:
    """RAM in bytes as the kernel has it, and what a container or a job may take of it."""
    total = None
    for line in text(root / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal" and rest.split()[:1]:
            total = int(rest.split()[0]) * _KIB
    limits = [limit for name in _LIMITS if (limit := number(root / name)) and limit < _NO_LIMIT_BYTES]
    return {"total_bytes": total, "limit_bytes": min(limits, default=None)}


def cpus(root: Path) -> dict[str, Any]:
    """The name of the processor, sockets, NUMA domains and cores of the node, and the cores that this process has."""
    name = next(
        (
            line.partition(":")[2].strip()
            for line in text(root / "proc/cpuinfo").splitlines()
            if line[:10] == "model name"
        ),
        "",
    )
    places = dict(_places(root / "sys/devices/system/cpu"))
    mine = set(places)
    if root == Path("/") and hasattr(os, "sched_getaffinity"):
        mine = os.sched_getaffinity(0) & mine or mine
    return {
        "name": name,
        "sockets": len({package for package, _ in places.values()}),
        "numa_domains": sum(bool(text(path)) for path in (root / "sys/devices/system/node").glob("node[0-9]*/cpulist")),
        "cores": len(set(places.values())),
        "allowed_cores": len({places[number] for number in mine}),
    }


def _places(folder: Path) -> Iterator[tuple[int, tuple[int, int]]]:
    """Number of each logical CPU -> its socket and core; threads of one core share them."""
    for path in sorted(folder.glob("cpu[0-9]*")):
        package, core = number(path / "topology/physical_package_id"), number(path / "topology/core_id")
        if core is not None:
            yield int(path.name[3:]), (max(package or 0, 0), core)


def disks(root: Path) -> list[dict[str, Any]]:
    """NVMe drives, with what they call themselves and their bytes."""
    return [
        {
            "name": path.name,
            "model": text(path / "device/model"),
            "bytes": (number(path / "size") or 0) * _SECTOR_BYTES,
        }
        for path in sorted((root / "sys/block").glob("nvme*"))
        if "c" not in path.name.removeprefix("nvme")  # nvme0c0n1 is another path to nvme0n1
    ]


def interfaces(root: Path) -> list[dict[str, Any]]:
    """What joins this node to others: RDMA ports, and Ethernet cards that a cable is in, each with Gb/s."""
    said: list[dict[str, Any]] = []
    under = set()
    for device in sorted((root / "sys/class/infiniband").glob("*")):
        under |= {path.name for path in (device / "device/net").glob("*")}
        for port in sorted((device / "ports").glob("*")):
            rate = text(port / "rate").split()
            said.append(
                {
                    "name": device.name,
                    "kind": "efa" if _driver(device) == "efa" else text(port / "link_layer").lower(),
                    "up": "ACTIVE" in text(port / "state"),
                    "gbits": float(rate[0]) if rate else None,
                }
            )
    for card in sorted((root / "sys/class/net").glob("*")):
        speed = number(card / "speed")  # Mb/s; -1 without a cable, and not there for a bridge or loopback
        if (card / "device").exists() and card.name not in under:
            up = text(card / "operstate") == "up"
            gbits = speed / 1000 if speed is not None and speed > 0 else None
            said.append({"name": card.name, "kind": "net", "up": up, "gbits": gbits})
    return said


def _driver(device: Path) -> str:
    with contextlib.suppress(OSError):
        return (device / "device/driver").resolve(strict=True).name
    return ""


def display_controllers(root: Path) -> list[dict[str, str]]:
    """Cards on the PCI bus that could be GPUs: vendor and device, whether a driver has them or not."""
    return [
        {"address": path.name, "vendor": text(path / "vendor"), "device": text(path / "device")}
        for path in sorted((root / "sys/bus/pci/devices").glob("*"))
        if text(path / "class").startswith((_DISPLAY, _ACCELERATOR))
    ]
