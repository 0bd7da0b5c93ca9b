"""What is measured of a machine when asked: how fast RAM copies, a drive writes and reads, and PCIe carries."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

from dsgen.proving import children
from dsgen.shapes.errors import mistake
from dsgen.shapes.value import Value

__all__ = ["DriveRates", "LinkRates", "MemoryRate", "drive_rates", "link_rates", "memory_rate"]

_COPY_BYTES = 1 << 28  # all threads of a round together, each way: beyond any processor's cache but EPYC's largest
_LEAST_COPY_BYTES = 1 << 24  # of one thread
_ROUNDS = 6  # the first warms up, the best of the others counts, as in STREAM
_MOST_THREADS = 64  # beyond it no machine gains
_FILE_BYTES = 2 << 30  # written and read in a folder: a drive's own cache is smaller
_BLOCK_BYTES = 8 << 20  # of one request
_REQUESTS = 8  # at once, as DeepSpeed's aio has them in flight
_LINK_SECONDS = 120.0  # for torch to start and copy


@attrs.frozen(kw_only=True, repr=False, eq=False)
class MemoryRate(Value):
    """What copies in RAM move: bytes read and bytes written together, as STREAM counts them."""

    bytes_per_second: float
    threads: int


@attrs.frozen(kw_only=True, repr=False, eq=False)
class DriveRates(Value):
    """What the drive below a folder writes and reads.

    Attributes:
        folder: Where it was measured.
        write_bytes_per_second, read_bytes_per_second: In large blocks, several at once.
        total_bytes: What its file system holds.
        direct: Whether the requests went past the kernel's cache, so that what was read came from the drive.
    """

    folder: str
    write_bytes_per_second: float
    read_bytes_per_second: float
    total_bytes: int
    direct: bool


@attrs.frozen(kw_only=True, repr=False, eq=False)
class LinkRates(Value):
    """What pinned copies between host memory and one GPU carry, each way alone; or why that was not measured."""

    to_device_bytes_per_second: float | None
    to_host_bytes_per_second: float | None
    missing: str


def memory_rate(cores: int, total_bytes: int = _COPY_BYTES) -> MemoryRate:
    """How fast all cores together copy in RAM.

    Args:
        cores: As many threads copy at once, up to 64.
        total_bytes: What they copy in a round.
    """
    threads = max(1, min(cores, _MOST_THREADS))
    size = max(total_bytes // threads, min(_LEAST_COPY_BYTES, total_bytes))

    def pair(_: int) -> tuple[mmap.mmap, mmap.mmap]:
        # Written here, in the thread that copies it, so that the pages lie on its own socket.
        made = mmap.mmap(-1, size), mmap.mmap(-1, size)
        for one in made:
            ctypes.memset(_address(one), 1, size)
        return made

    with ThreadPoolExecutor(threads) as pool:
        pairs = list(pool.map(pair, range(threads)))
        rounds = [_seconds(lambda: list(pool.map(lambda one: _copied(one, size), pairs))) for _ in range(_ROUNDS)]
    return MemoryRate(bytes_per_second=2 * size * threads / min(rounds[1:]), threads=threads)


def _copied(pair: tuple[mmap.mmap, mmap.mmap], size: int) -> None:
    ctypes.memmove(_address(pair[0]), _address(pair[1]), size)  # ctypes lets other threads run meanwhile


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def drive_rates(folder: str, file_bytes: int = _FILE_BYTES) -> DriveRates:
    """How fast the drive below a folder writes and reads; the file is gone afterwards.

    Args:
        folder: A folder on it.
        file_bytes: What is written and read.

    Raises:
        DsgenError: No such folder, not writable, or too little room.
    """
    blocks = max(1, file_bytes // _BLOCK_BYTES)
    try:
        system = os.statvfs(folder)
        free = system.f_bavail * system.f_frsize
        if free < 2 * blocks * _BLOCK_BYTES:
            raise mistake(
                f"{free / 2**30:.1f} GiB are free",
                must=f"the measurement writes {blocks * _BLOCK_BYTES / 2**30:.0f} GiB and leaves as much",
                where=folder,
                code="unwritable",
            )
        descriptor, name = tempfile.mkstemp(prefix=".dsgen-measure-", dir=folder)
        os.close(descriptor)
    except OSError as error:
        raise mistake(
            f"it cannot be measured ({error.strerror})",
            must="it must be a folder on the drive, which is yours to write",
            where=folder,
            code="unwritable",
        ) from None
    try:
        return _timed(folder, Path(name), blocks, system.f_blocks * system.f_frsize)
    finally:
        with contextlib.suppress(OSError):
            Path(name).unlink()


def _timed(folder: str, path: Path, blocks: int, holds: int) -> DriveRates:
    descriptor, direct = _opened(path)
    try:
        total = blocks * _BLOCK_BYTES
        buffers = [mmap.mmap(-1, _BLOCK_BYTES) for _ in range(_REQUESTS)]  # pages, as O_DIRECT wants them
        for buffer in buffers:
            buffer.write(os.urandom(1 << 20) * (_BLOCK_BYTES >> 20))  # a drive may compress zeros

        def lane(move: Callable[[int, list[mmap.mmap], int], int]) -> None:
            def mine(number: int) -> None:
                for block in range(number, blocks, _REQUESTS):
                    move(descriptor, [buffers[number]], block * _BLOCK_BYTES)

            list(pool.map(mine, range(_REQUESTS)))

        def written() -> None:
            lane(os.pwritev)
            os.fsync(descriptor)

        with ThreadPoolExecutor(_REQUESTS) as pool:
            write = total / _seconds(written)
            if not direct and hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, 0, total, os.POSIX_FADV_DONTNEED)
            read = total / _seconds(lambda: lane(os.preadv))
        return DriveRates(
            folder=folder, write_bytes_per_second=write, read_bytes_per_second=read, total_bytes=holds, direct=direct
        )
    finally:
        os.close(descriptor)


def _opened(path: Path) -> tuple[int, bool]:
    """The file past the kernel's cache, where the file system takes that."""
    with contextlib.suppress(OSError, AttributeError):
        return os.open(path, os.O_RDWR | os.O_DIRECT), True
    return os.open(path, os.O_RDWR), False


def link_rates(python: str | None = None) -> LinkRates:
    """What pinned copies to and from a GPU carry, asked of torch in a child process; or why not."""
    try:
        with children.start(python or sys.executable, "copies", "copies") as child:
            told = child.ask({}, _LINK_SECONDS, last=True)
    except children.LostError as error:
        told = {"missing": str(error)}
    return LinkRates(
        to_device_bytes_per_second=told.get("to_device_bytes_per_second"),
        to_host_bytes_per_second=told.get("to_host_bytes_per_second"),
        missing=told.get("missing", ""),
    )
