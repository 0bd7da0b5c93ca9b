"""Values as pydantic's lax mode, and so a strict section of DeepSpeed, reads them: "2" is 2, 5e8 a whole number."""

from __future__ import annotations

import math
import re

__all__ = ["FALSE_TEXTS", "TRUE_TEXTS", "boolean", "integer", "number"]

TRUE_TEXTS = frozenset(("true", "t", "yes", "y", "on", "1"))  # what pydantic takes for true, in any case
FALSE_TEXTS = frozenset(("false", "f", "no", "n", "off", "0"))

_INTEGER = re.compile(r"[-+]?[0-9]+(_[0-9]+)*(\.0*)?")
_FLOATS_BELOW = 2.0**63  # pydantic takes a whole float that fits 64 bits, and a whole number of any size
_DIGITS = 4_300  # longest whole number that Python, and so pydantic, reads from text


def boolean(value: object) -> bool | None:
    """What is read where true or false is wanted; None where it is refused."""
    if isinstance(value, (bool, int, float)):
        return bool(value) if value in (0, 1) else None
    if isinstance(value, str):
        text = value.lower()
        return True if text in TRUE_TEXTS else False if text in FALSE_TEXTS else None
    return None


def integer(value: object) -> int | None:
    """What is read where a whole number is wanted; None where it is refused."""
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _FLOATS_BELOW else None
    if isinstance(value, str) and len(value) <= _DIGITS and _INTEGER.fullmatch(value.strip()):
        return int(value.strip().partition(".")[0].replace("_", ""))
    return None


def number(value: object) -> float | None:
    """What is read where a number is wanted; None where it is refused."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, str):
        try:
            read = float(value)
        except ValueError:
            return None
        return read if math.isfinite(read) else None
    return None
