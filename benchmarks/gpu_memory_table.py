"""Measured beside simulated: the errors of every case, the table of all of them, and how many are within the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from dsgen.memory.overheads import CUBLAS_WORKSPACE_BYTES, CUBLAS_WORKSPACE_WIDE_BYTES, WORKSPACE_THREADS

__all__ = ["RESERVED_TARGET", "TARGET", "Row", "markdown", "row", "summary", "workspace_bytes"]

GIB = 2**30
TARGET = 0.02  # of the measured bytes that torch had allocated
RESERVED_TARGET = 0.05  # of those that it had reserved
WIDE = (9, 10, 12)  # majors of the compute capabilities with the wide workspace
NONE = "–"


@attrs.frozen
class Row:
    """One case of the table.

    Attributes:
        name: The case.
        measured: Peaks on the card: bytes allocated and reserved; None where it was not measured.
        simulated: The simulation's, with cuBLAS's workspaces added; None where it was not simulated.
        outside: Bytes on the card outside torch after the last step; None where they were not read.
        note: Why something is missing; "" where nothing is.
    """

    name: str
    measured: tuple[int, int] | None
    simulated: tuple[int, int] | None
    outside: int | None
    note: str

    @property
    def errors(self) -> tuple[float, float] | None:
        """Simulated against measured, signed: of allocated and of reserved bytes."""
        if self.measured is None or self.simulated is None:
            return None
        pairs = zip(self.simulated, self.measured, strict=True)
        allocated, reserved = (simulated / measured - 1 for simulated, measured in pairs)
        return allocated, reserved

    @property
    def within(self) -> tuple[bool, bool] | None:
        """Whether both errors are within their targets."""
        if self.errors is None:
            return None
        return abs(self.errors[0]) <= TARGET, abs(self.errors[1]) <= RESERVED_TARGET


def workspace_bytes(capability: list[int]) -> int:
    """cuBLAS's workspaces in torch's allocator, which the simulation has none of.

    Args:
        capability: Major and minor of the card's compute capability.
    """
    return WORKSPACE_THREADS * (CUBLAS_WORKSPACE_WIDE_BYTES if capability[0] in WIDE else CUBLAS_WORKSPACE_BYTES)


def row(name: str, record: Mapping[str, Any]) -> Row:
    """The row of a record; whatever ended either side is its note.

    Args:
        name: The case.
        record: `measured` and `simulated`, either of which may be missing, or have `error` or `not_run`.
    """
    measured, simulated = record.get("measured") or {}, record.get("simulated") or {}
    notes = [_note("the card", measured), _note("the simulation", simulated)]
    peak = measured.get("peak")
    allocator = simulated.get("allocator")
    card = measured.get("card")
    extra = workspace_bytes(card["capability"]) if card else 0
    if allocator and allocator["out_of_memory"]:
        notes.append("the simulation ran out of memory")
    return Row(
        name,
        (peak["allocated_bytes"], peak["reserved_bytes"]) if peak else None,
        (allocator["allocated_peak_bytes"] + extra, allocator["reserved_peak_bytes"] + extra) if allocator else None,
        measured["after"]["outside_bytes"] if "after" in measured else None,
        "; ".join(filter(None, notes)),
    )


def _note(side: str, part: Mapping[str, Any]) -> str:
    if not part:
        return f"{side}: not run"
    if "not_run" in part:
        return f"{side}: not run, {part['not_run']}"
    if "error" in part:
        error = part["error"]
        message = error["message"].splitlines()[0].replace("|", "/")
        return f"{side}: {error['type']} in {error.get('phase', 'load')}, {message[:120]}"
    return ""


def summary(rows: list[Row]) -> str:
    """How many cases there are, how many were compared, and how many of those are within the targets."""
    compared = [one for one in rows if one.errors is not None]
    if not compared:
        return f"{len(rows)} cases, none compared."
    allocated = sum(one.within[0] for one in compared if one.within)
    reserved = sum(one.within[1] for one in compared if one.within)
    worst = [max((one.errors[part] for one in compared if one.errors), key=abs) for part in (0, 1)]
    return (
        f"{len(rows)} cases, {len(compared)} compared: allocated within {TARGET:.0%} in {allocated} "
        f"(worst {worst[0]:+.1%}), reserved within {RESERVED_TARGET:.0%} in {reserved} (worst {worst[1]:+.1%})."
    )


def markdown(records: Mapping[str, Mapping[str, Any]]) -> str:
    """The table of every record, none dropped, for a page of the docs."""
    rows = [row(name, record) for name, record in records.items()]
    lines = [
        *_origin(records),
        summary(rows),
        "",
        "| case | allocated GiB | simulated | error | reserved GiB | simulated | error | outside torch MiB | note |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for one in rows:
        cells = [one.name]
        for part in (0, 1):
            cells.append(_gib(one.measured[part] if one.measured else None))
            cells.append(_gib(one.simulated[part] if one.simulated else None))
            cells.append(f"{one.errors[part]:+.1%}" if one.errors else NONE)
        cells += [NONE if one.outside is None else f"{one.outside / 2**20:.0f}", one.note]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _origin(records: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Card, driver and versions of each side, once for each that occurs."""
    found = []
    for record in records.values():
        measured, simulated = record.get("measured") or {}, record.get("simulated") or {}
        card = measured.get("card")
        if card:
            found.append(f"Measured on {card['name']}, driver {card['driver']}, {_versions(measured)}.")
        if simulated.get("versions"):
            found.append(f"Simulated with {_versions(simulated)}.")
    return [f"{line}\n" for line in dict.fromkeys(found)]


def _versions(part: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in part["versions"].items() if version)


def _gib(size: int | None) -> str:
    return NONE if size is None else f"{size / GIB:.2f}"
