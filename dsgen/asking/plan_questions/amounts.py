"""Amounts as people say them: 300B tokens, 7d."""

from __future__ import annotations

import datetime
import math
import re

from dsgen.shapes.errors import mistake
from dsgen.shapes.layers import show
from dsgen.shapes.limits import MOST_TOKENS

__all__ = ["seconds_of", "tokens_of", "tokens_text"]

_SCALES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_TOKENS = re.compile(r"(-?[0-9][0-9_,]*(?:\.[0-9]+)?(?:[eE]\+?[0-9]{1,2})?) *([A-Za-z]*)")
_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LENGTH = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?) *([a-z]+) *")
MOST_SECONDS = 100 * 365.25 * 86_400  # a century


def tokens_of(said: float | str) -> int:
    """A number of tokens: 300B, 1.5T, 2_000_000, 5e9.

    Raises:
        DsgenError: No number, an unknown unit, none at all, or more than there are.
    """
    number: float | None = None
    if isinstance(said, (int, float)) and not isinstance(said, bool):
        number = said
    elif isinstance(said, str) and (match := _TOKENS.fullmatch(said.strip())) and match[2].upper() in _SCALES:
        number = float(match[1].replace(",", "").replace("_", "")) * _SCALES[match[2].upper()]
    if number is None or not math.isfinite(number):
        raise mistake(
            f"tokens is {show(said)}",
            must="it must be a number, with K, M, B or T for thousands, millions, billions or trillions",
            todo="Such as 300B.",
        )
    if not 1 <= number <= MOST_TOKENS:
        raise mistake(
            f"tokens is {show(said)}", must=f"it must be from 1 to {MOST_TOKENS / 1e12:,.0f}T", todo="Such as 300B."
        )
    return int(number)


def seconds_of(said: str | datetime.timedelta) -> float:
    """A length of time in seconds: 7d, 36h, 1d12h, 90min, 2w.

    Raises:
        DsgenError: No length, an unknown unit, none at all, or more than a century.
    """
    seconds: float | None = None
    if isinstance(said, datetime.timedelta):
        seconds = said.total_seconds()
    elif isinstance(said, str):
        parts = list(_LENGTH.finditer(said.strip()))
        whole = "".join(part[0] for part in parts) == said.strip() and bool(parts)
        if whole and all(part[2] in _UNITS for part in parts):
            seconds = sum(float(part[1]) * _UNITS[part[2]] for part in parts)
    if seconds is None:
        raise mistake(
            f"deadline is {show(str(said))}",
            must="it must be a length of time in s, min, h, d or w",
            todo="Such as 7d, 36h or 1d12h.",
        )
    if not 0 < seconds <= MOST_SECONDS:
        raise mistake(
            f"deadline is {show(str(said))}",
            must="it must be longer than nothing, and at most a century, which is 5217w",
            todo="Such as 7d, 36h or 1d12h.",
        )
    return seconds


def tokens_text(tokens: int) -> str:
    """A number of tokens as people say it: 300B, 1.5T."""
    for unit, scale in reversed(_SCALES.items()):
        if tokens >= scale:
            return f"{tokens / scale:.4g}{unit}"
    return str(tokens)
