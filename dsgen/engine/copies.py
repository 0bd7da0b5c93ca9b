"""Child process that copies between host memory and GPU 0 and says how fast: what a PCIe slot really gives."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from dsgen.engine.children import die_with_parent

__all__ = ["main"]

_BYTES = 1 << 28  # of one copy: long beside its start of 10 us, short beside any card's memory
_ROUNDS = 8  # after one to warm up; the median counts


def main(_: Sequence[str] = ()) -> int:
    """Read one request, answer it with bytes a second to and from the GPU, or with why there are none."""
    die_with_parent()
    sys.stdin.readline()
    print(json.dumps(_answer()), flush=True)
    return 0


def _answer() -> dict[str, Any]:
    try:
        import torch
    except ImportError:
        return {"missing": "torch is not installed"}
    if not torch.cuda.is_available():
        return {"missing": "torch sees no GPU"}
    host = torch.empty(_BYTES, dtype=torch.uint8, pin_memory=True)
    card = torch.empty(_BYTES, dtype=torch.uint8, device="cuda:0")
    return {
        "to_device_bytes_per_second": _rate(torch, card, host),
        "to_host_bytes_per_second": _rate(torch, host, card),
    }


def _rate(torch: Any, to: Any, source: Any) -> float:
    seconds = []
    for _ in range(_ROUNDS + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        to.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return float(_BYTES / sorted(seconds[1:])[_ROUNDS // 2])
