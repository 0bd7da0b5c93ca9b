"""What turns a checkpoint into another, as words and data: what of it has no room, and files that repeat themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dsgen.memory import Verdict, verdict
from dsgen.memory.conversions import Conversion, Unconverted
from dsgen.shapes.units import gib

__all__ = ["conversion_lines", "conversions_data"]

_GB = 10**9  # what --max_shard_size counts in


def conversion_lines(made: Sequence[Conversion], stopped: Sequence[Unconverted], limit: int) -> Iterator[str]:
    """What a person must know of the scripts before they are run on a machine with `limit` bytes of RAM; 0: any."""
    for one in made:
        if one.left_bytes > one.one_bytes:
            yield (
                f"{one.name} writes all {gib(one.one_bytes)} GiB into each of its {one.files} files, "
                f"{gib(one.left_bytes)} GiB of disk: --max_shard_size {-(-one.one_bytes // _GB)}GB makes one file"
            )
        if limit and _verdict(one, limit) is not Verdict.FITS:
            yield (
                f"{one.name} takes {gib(one.ram_bytes)} of {gib(limit)} GiB of RAM: run it behind training on a "
                "machine that has them"
            )
    reasons: dict[str, list[str]] = {}
    for script in stopped:
        reasons.setdefault(script.reason, []).append(script.name)
    for reason, names in reasons.items():
        yield f"{' and '.join(names)} {'stop' if len(names) > 1 else 'stops'} at its checkpoint: {reason}"


def conversions_data(made: Sequence[Conversion], limit: int) -> list[dict[str, Any]]:
    """The same as plain JSON types; the verdict is of the RAM of one of the job's nodes, with nothing beside."""
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
        for one in made
    ]


def _verdict(one: Conversion, limit: int) -> Verdict:
    return verdict(one.ram_bytes, one.ram_bytes, limit)
