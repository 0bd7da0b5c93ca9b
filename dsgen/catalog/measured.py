"""What was measured of a machine, as facts of its profile: the peak of which the models take a known share."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.catalog.detected import DetectedFact
from dsgen.detecting import DetectedNode
from dsgen.detecting.measuring import DriveRates, LinkRates, MemoryRate
from dsgen.kernels.host_work import HOST_MEMORY_SHARE, NVME_SHARE, PINNED_SHARE

__all__ = ["measured_facts"]

_GB = 10**9


def measured_facts(
    node: DetectedNode, memory: MemoryRate | None, drive: DriveRates | None, link: LinkRates | None
) -> tuple[DetectedFact, ...]:
    """Facts such that what the models take of them is what was measured.

    A profile holds peaks, and a model takes a share of each (`dsgen.kernels.host_work`): so much, divided by that
    share, is written.
    """
    return tuple(_facts(node, memory, drive, link))


def _facts(
    node: DetectedNode, memory: MemoryRate | None, drive: DriveRates | None, link: LinkRates | None
) -> Iterator[DetectedFact]:
    where = f"on {node.host}, {node.date}"
    if memory is not None:
        source = f"measured {where}: copies in RAM, {memory.threads} threads, bytes read and written"
        yield _fact("host_memory_bandwidth", memory.bytes_per_second, HOST_MEMORY_SHARE, source)
    if drive is not None:
        past = "past the kernel's cache" if drive.direct else "through the kernel's cache"
        source = f"measured {where}: 8 MiB blocks, 8 at once, {past}, in {drive.folder}"
        if not node.drives:
            told = f"statvfs {where}: the file system of {drive.folder}"
            yield DetectedFact(name="nvme_capacity", value=f"{drive.total_bytes / 10**12:.3g} TB",
                               why="of the folder that was measured", source=told, was="")  # fmt: skip
        yield _fact("nvme_read_bandwidth", drive.read_bytes_per_second, NVME_SHARE, source)
        yield _fact("nvme_write_bandwidth", drive.write_bytes_per_second, NVME_SHARE, source)
    if link is not None and link.to_device_bytes_per_second and link.to_host_bytes_per_second:
        source = f"measured {where}: pinned copies of 256 MiB, GPU 0 alone, torch"
        slower = min(link.to_device_bytes_per_second, link.to_host_bytes_per_second)
        yield _fact("host_link_bandwidth", slower, PINNED_SHARE, source)


def _fact(name: str, rate: float, share: float, source: str) -> DetectedFact:
    why = f"so that {share:g} of it are the {rate / _GB:.3g} GB/s measured"
    return DetectedFact(name=name, value=f"{rate / share / _GB:.4g} GB/s", why=why, source=source, was="")
