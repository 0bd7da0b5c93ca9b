"""What turns a checkpoint into another, as words and data: what of it has no room, and files that repeat themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsgen.asking.memory_questions import Footprint
from dsgen.memory import Verdict, verdict
from dsgen.memory.conversions import Conversion
from dsgen.shapes.units import gib

__all__ = ["conversion_lines", "conversions_data"]

_GB = 10**9  # what --max_shard_size counts in


def conversion_lines(footprint: Footprint) -> Iterator[str]:
    """What a person must know of the scripts before they are run."""
    limit = footprint.memory.host.limit_bytes
    for one in footprint.conversions:
        if one.left_bytes > one.one_bytes:
            yield (
                f"{one.name} writes all {gib(one.one_bytes)} GiB into each of its {one.files} files, "
                f"{gib(one.left_bytes)} GiB of disk: --max_shard_size {-(-one.one_bytes // _GB)}GB makes one file"
            )
        if _verdict(one, limit) is not Verdict.FITS:
            yield (
                f"{one.name} takes {gib(one.ram_bytes)} of {gib(limit)} GiB of RAM: run it behind training on a "
                "machine that has them"
            )
    reasons: dict[str, list[str]] = {}
    for stopped in footprint.unconverted:
        reasons.setdefault(stopped.reason, []).append(stopped.name)
    for reason, names in reasons.items():
        yield f"{' and '.join(names)} {'stop' if len(names) > 1 else 'stops'} at its checkpoint: {reason}"


def conversions_data(footprint: Footprint) -> list[dict[str, Any]]:
    """The same as plain JSON types; the verdict is of the RAM of one of the job's nodes, with nothing beside."""
    limit = footprint.memory.host.limit_bytes
    return [
        {
            "name": one.name,
            "verdict": _verdict(one, limit).value,
            "host_bytes": one.ram_bytes,
            "host_parts": dict(one.parts),
            "limit_bytes": limit,
            "disk_bytes": one.disk_bytes,
            "left_bytes": one.left_bytes,
            "files": one.files,
        }
        for one in footprint.conversions
    ]


def _verdict(one: Conversion, limit: int) -> Verdict:
    return verdict(one.ram_bytes, one.ram_bytes, limit)
