"""What was recorded, from benchmarks/data/: DeepSpeed 0.19.8's verdicts on the probes, its keys, and published runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["DATA", "allocations", "kernel_rows", "key_facts", "probes", "published",
           "published_gathered", "published_later"]  # fmt: skip

DATA = Path(__file__).resolve().parents[2] / "benchmarks" / "data"


def probes() -> list[dict[str, Any]]:
    """The 417 probes: config, ranks, and what came of it."""
    return _records("deepspeed-0.19.8-probes.json")


def key_facts() -> list[dict[str, Any]]:
    """The 382 keys that the release reads: default, strictness of the section, and where that is read."""
    return _records("deepspeed-0.19.8-keys.json")


def published() -> list[dict[str, Any]]:
    """The 923 training runs that others measured."""
    return _records("published.json")


def published_later() -> list[dict[str, Any]]:
    """The 624 more that the speed model is compared with too."""
    return _records("published_2.json")


def published_gathered() -> list[dict[str, Any]]:
    """95, 56, 35, 51, 65, 69, 57, 66 and 72 more, gathered when the models were done, of which nothing was fitted."""
    return [record for again in (3, 4, 5, 6, 7, 8, 9, 10, 11) for record in _records(f"published_{again}.json")]


def kernel_rows() -> list[dict[str, Any]]:
    """The 1,741 kernels, collectives, copies and host operations that others measured."""
    return _records("kernels.json")


def allocations() -> list[dict[str, Any]]:
    """Four histories of torch's allocator on GPUs, as memory snapshots have them."""
    return _records("allocations.json")


def _records(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DATA / name).read_text(encoding="utf-8"))
    return found
