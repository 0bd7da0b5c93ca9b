"""The one place that calls torch.cuda: readings of a card's memory, taken so that nobody else's reset loses a peak."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import torch

__all__ = ["Card"]

MIB = 2**20


class Card:
    """The first CUDA device, torch's allocator on it, and the driver's view of both."""

    device = "cuda:0"
    backend = "nccl"

    def __init__(self, limit_bytes: int | None = None) -> None:
        """A card of which torch takes all it needs, or no more than a limit."""
        self._limit = limit_bytes
        self._folded = (0, 0)
        self._reset: Any = None

    def open(self) -> dict[str, Any]:
        """Make the context, and read what it takes: the first CUDA call of a run.

        DeepSpeed resets torch's peaks while it initializes (`see_memory_usage`), so each reset keeps what it forgets.

        Raises:
            AssertionError, RuntimeError: No CUDA device, in torch's words.
        """
        torch.cuda.init()
        torch.cuda.set_device(0)
        if self._limit:
            torch.cuda.set_per_process_memory_fraction(self._limit / torch.cuda.mem_get_info()[1], 0)
        torch.zeros(1, device=self.device)
        torch.cuda.synchronize()
        self._reset = torch.cuda.reset_peak_memory_stats
        torch.cuda.reset_peak_memory_stats = self._keep_and_reset
        properties = torch.cuda.get_device_properties(0)
        return {
            "name": properties.name,
            "capability": [properties.major, properties.minor],
            "multiprocessors": properties.multi_processor_count,
            "driver": _driver(),
            "cuda": torch.version.cuda,
            "total_bytes": torch.cuda.mem_get_info()[1],
            "context_bytes": self.outside(),
            "context_by_nvidia_smi_bytes": _process_bytes(),
        }

    def wait(self) -> None:
        """Until everything that was launched is done."""
        torch.cuda.synchronize()

    def begin(self) -> None:
        """A phase begins: its peaks start from what is held now."""
        torch.cuda.synchronize()
        self._reset()
        self._folded = (0, 0)

    def end(self) -> dict[str, int]:
        """A phase ends: its peaks, and what is held."""
        torch.cuda.synchronize()
        allocated, reserved = self._peaks()
        return {
            "peak_allocated_bytes": allocated,
            "peak_reserved_bytes": reserved,
            "end_allocated_bytes": torch.cuda.memory_allocated(),
            "end_reserved_bytes": torch.cuda.memory_reserved(),
        }

    def close(self) -> dict[str, Any]:
        """After the last phase: what lies outside torch, and how often torch had to try again."""
        return {
            "outside_bytes": self.outside(),
            "process_by_nvidia_smi_bytes": _process_bytes(),
            "allocation_retries": torch.cuda.memory_stats().get("num_alloc_retries", 0),
        }

    def outside(self) -> int:
        """Bytes in use on the card that torch's allocator did not take; other processes' would be among them."""
        free, total = torch.cuda.mem_get_info()
        return total - free - torch.cuda.memory_reserved()

    def _peaks(self) -> tuple[int, int]:
        now = (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
        return max(self._folded[0], now[0]), max(self._folded[1], now[1])

    def _keep_and_reset(self, *arguments: Any, **named: Any) -> None:
        self._folded = self._peaks()
        self._reset(*arguments, **named)


def _driver() -> str | None:
    return _nvidia_smi("--query-gpu=driver_version").partition("\n")[0] or None


def _process_bytes() -> int | None:
    """What nvidia-smi shows of this process; None where it shows none, as inside some containers."""
    for line in _nvidia_smi("--query-compute-apps=pid,used_memory").splitlines():
        number, _, used = line.partition(",")
        if number.strip() == str(os.getpid()) and used.strip().isdigit():
            return int(used) * MIB
    return None


def _nvidia_smi(query: str) -> str:
    """What nvidia-smi answers; nothing where there is none."""
    try:
        command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
