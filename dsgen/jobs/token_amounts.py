"""Numbers of tokens as people write them in a scenario: 32k of a sequence, 300B of a run."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["amount"]

_LENGTHS = ("seq_len", "target_len", "mean_len")  # of which 32k is 32 x 1024, as models have it
_MANY = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}  # of total_tokens
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMBT])", re.IGNORECASE)


def amount(field: str, said: Any) -> Any:
    """The number of tokens that a text means for a field of a scenario; anything else as it is."""
    match = _AMOUNT.fullmatch(said) if isinstance(said, str) else None
    if match is not None and field == "total_tokens":
        return round(float(match[1]) * _MANY[match[2].upper()])
    if match is not None and field in _LENGTHS and match[2].upper() == "K":
        return round(float(match[1]) * 1024)
    return said
