"""Measured beside predicted: the row of a run and of a kernel with its signed errors, and the tables of all of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["case_row", "case_words", "kernel_row", "markdown"]

GIB = 2**30
NONE = "–"


def case_row(request: Mapping[str, Any], measured: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """A run: what ran, what was measured and said, and the signed errors: above 0, dsgen says more.

    Args:
        request: What ran, as `dsgen.engine.simulate` takes it; its model's facts stand in the catalog.
        measured: The child's answer.
        said: `gpu_speed_cases.predicted`.
    """
    kept = {name: value for name, value in measured.items() if name not in ("card", "versions")}
    errors: dict[str, float] = {}
    if "median_seconds" in measured and "step_seconds" in said:
        seconds = measured["median_seconds"]
        errors["step"] = said["step_seconds"] / seconds - 1
        errors["inside"] = said["low_seconds"] <= seconds <= said["high_seconds"]
        for name in ("allocated", "reserved"):
            if peak := measured.get("peak", {}).get(f"{name}_bytes"):
                key = "peak_gib" if name == "allocated" else "reserved_gib"
                errors[name] = said[key] * GIB / peak - 1
    asked = {name: value for name, value in request.items() if name not in ("model", "world_size", "gpus_per_node")}
    return {"request": asked, "measured": kept, "predicted": dict(said), "errors": errors}


def kernel_row(kernel: Mapping[str, Any], measured: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """A kernel: its shape, what was measured and said in seconds, and the signed error."""
    row = {"kernel": dict(kernel), **measured, "predicted_seconds": seconds}
    if "seconds" in measured:
        row["error"] = seconds / measured["seconds"] - 1
    return row


def case_words(name: str, row: Mapping[str, Any]) -> str:
    """One run in a line, as it is measured."""
    measured, errors = row["measured"], row["errors"]
    if "error" in measured:
        return f"{name}: {_failed(measured['error'])}"
    said = row["predicted"]
    if "refused" in said:
        return f"{name}: {measured['median_seconds']:.3g} s; dsgen refuses it: {said['refused']}"
    peak = f", peak {errors['allocated']:+.1%}" if "allocated" in errors else ""
    return (
        f"{name}: {measured['median_seconds']:.3g} s measured, {said['step_seconds']:.3g} s said, "
        f"{errors['step']:+.0%}{peak}"
    )


def _failed(error: Mapping[str, Any]) -> str:
    if error.get("out_of_memory"):
        return f"out of memory in {error.get('phase', 'it')}"
    return f"{error['type']} in {error.get('phase', 'it')}: {error['message'].splitlines()[0][:120]}".replace("|", "/")


def markdown(records: Mapping[str, Any]) -> str:
    """Every run and every sort of kernel, none dropped."""
    if "card" not in records:
        return "nothing is recorded"
    card, versions = records["card"], records["versions"]
    known = ", ".join(f"{name} {value}" for name, value in versions.items() if value)
    lines = [
        f"Measured on {card['name']}, driver {card.get('driver')}, CUDA {card.get('cuda')}, {known}, "
        f"on {records['date']}; said by dsgen {records['dsgen']} of {records['profile']}.",
        "",
        *_kernel_lines(records["kernels"].values()),
        "",
        *_case_lines(records["cases"]),
    ]
    return "\n".join(lines)


def _kernel_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    groups: dict[str, list[float]] = {}
    failed: dict[str, int] = {}
    for row in rows:
        kernel = row["kernel"]
        sort = kernel.get("dtype") or kernel.get("sort") or kernel.get("direction") or ""
        about = f"{kernel['kind']} {kernel.get('phase', sort)}".strip()
        groups.setdefault(about, [])
        if "error" in row and isinstance(row["error"], float):
            groups[about].append(row["error"])
        else:
            failed[about] = failed.get(about, 0) + 1
    yield "| kernel | measured | median error | median absolute error | worst | failed |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for about, errors in groups.items():
        told = [NONE] * 3
        if errors:
            told = [f"{statistics.median(errors):+.0%}", f"{statistics.median(map(abs, errors)):.0%}",
                    f"{max(errors, key=abs):+.0%}"]  # fmt: skip
        yield f"| {about} | {len(errors)} | {' | '.join(told)} | {failed.get(about, 0)} |"


def _case_lines(cases: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    errors = [row["errors"] for row in cases.values() if "step" in row["errors"]]
    if errors:
        steps = [one["step"] for one in errors]
        inside = sum(one["inside"] for one in errors)
        yield (
            f"{len(cases)} runs, {len(errors)} compared: median error of a step {statistics.median(steps):+.1%}, "
            f"absolute {statistics.median(map(abs, steps)):.1%}, {inside} inside the interval."
        )
    else:
        yield f"{len(cases)} runs, none compared."
    yield ""
    yield "| run | measured s | said s | interval | error | peak GiB | said GiB | error | note |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, row in cases.items():
        measured, said, off = row["measured"], row["predicted"], row["errors"]
        peak = measured.get("peak", {}).get("allocated_bytes")
        cells = [
            name,
            f"{measured['median_seconds']:.3g}" if "median_seconds" in measured else NONE,
            f"{said['step_seconds']:.3g}" if "step_seconds" in said else NONE,
            f"{said['low_seconds']:.3g} to {said['high_seconds']:.3g}" if "step_seconds" in said else NONE,
            f"{off['step']:+.0%}" if "step" in off else NONE,
            f"{peak / GIB:.1f}" if peak else NONE,
            f"{said['peak_gib']:.1f}" if "peak_gib" in said else NONE,
            f"{off['allocated']:+.1%}" if "allocated" in off else NONE,
            _failed(measured["error"]) if "error" in measured else said.get("refused", ""),
        ]
        yield f"| {' | '.join(cells)} |"
