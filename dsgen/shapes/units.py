"""Quantities as people write them (`40 GiB`, `200 Gb/s`) to and from bytes, seconds and FLOP/s."""

from __future__ import annotations

import math
import re

__all__ = ["BANDWIDTH", "BYTES", "FLOPS", "LARGEST_MEMORY", "SECONDS", "UNITS", "gib", "parse", "unit_of"]

BYTES = "bytes"
BANDWIDTH = "bytes_per_second"
FLOPS = "flops_per_second"
SECONDS = "seconds"
LARGEST_MEMORY = 64 * 2**40  # bytes of the largest machine of one memory that was sold (SGI UV, HPE Superdome Flex)

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}

# unit of a field -> every spelling a person may write -> how many of the inner unit one is.
# Gb is gigabit, GB gigabyte, as on a datasheet; the case matters and is never guessed.
UNITS: dict[str, dict[str, float]] = {
    BYTES: {f"{p}B": n for p, n in {**_DECIMAL, **_BINARY}.items()},
    BANDWIDTH: {
        **{f"{p}B/s": n for p, n in {**_DECIMAL, **_BINARY}.items()},
        **{f"{p}b/s": n / 8 for p, n in _DECIMAL.items()},
    },
    FLOPS: {f"{p}FLOP/s": n for p, n in _DECIMAL.items()},
    SECONDS: {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60, "h": 3600},
}

_EXAMPLES = {BYTES: "40 GiB", BANDWIDTH: "200 Gb/s or 25 GB/s", FLOPS: "312 TFLOP/s", SECONDS: "5 us"}
_WHOLE = r"[0-9]{1,3}(?:,[0-9]{3})+|[0-9](?:[0-9_]*[0-9])?"  # a comma stands before three digits, and nowhere else
_QUANTITY = re.compile(rf"\s*((?:{_WHOLE})(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/]+)\s*")
_DECIMAL_COMMA = re.compile(r"\s*([0-9]+),([0-9]+)\s*([A-Za-z/]+)\s*")


def parse(text: object, unit: str) -> float:
    """Read a quantity.

    Args:
        text: What was written: a number and one of the unit's spellings.
        unit: The inner unit: one of the keys of `UNITS`.

    Returns:
        The quantity in the inner unit.

    Raises:
        ValueError: No number, no unit, or a unit of another kind; the text says what it must be.
    """
    spellings = UNITS[unit]
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    comma = _DECIMAL_COMMA.fullmatch(text) if match is None and isinstance(text, str) else None
    if comma is not None:
        raise ValueError(f"a comma stands between thousands; write {comma[1]}.{comma[2]} {comma[3]}")
    if match is None:
        raise ValueError(f"it must be a number with a unit, such as {_EXAMPLES[unit]}")
    number, spelling = match[1].replace(",", "").replace("_", ""), match[2]
    if spelling not in spellings:
        raise ValueError(f"'{spelling}' is not one of its units ({', '.join(spellings)}); write {_EXAMPLES[unit]}")
    amount = float(number) * spellings[spelling]
    if not math.isfinite(amount):
        raise ValueError("it is too large for a number")
    return amount


def unit_of(text: object) -> str | None:
    """The inner unit of a quantity that is written; None of anything else."""
    for unit in UNITS:
        try:
            parse(text, unit)
        except ValueError:
            continue
        return unit
    return None


def gib(count_bytes: float) -> str:
    """Bytes as GiB with the digits a person needs: 31.2, 0.61, 1,024."""
    value = count_bytes / 2**30
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"
