"""The values of YAML 1.2's core schema: from the tag of a scalar to the reader of its text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

__all__ = ["CORE", "MUST", "SCALARS", "as_text"]

CORE = "tag:yaml.org,2002:"  # the prefix of every tag of the schema
MUST = {
    "str": "text that UTF-8 can hold, without a null character",
    "timestamp": "text",
    "bool": "true or false",
    "int": "a whole number of at most 4,300 digits",
    "float": "a number",
}


def as_text(text: str) -> str:
    """The text itself.

    Raises:
        ValueError: It holds a lone surrogate (from an escape) or a null character.
    """
    text.encode("utf-8")
    if "\0" in text:
        raise ValueError("a null character ends a text in every C library below us")
    return text


def _bool(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _int(text: str) -> int:
    digits = text.replace("_", "")
    number = int(digits, 10) if re.fullmatch(r"[-+]?[0-9]+", digits) else int(digits, 0)
    str(number)  # Python's limit holds for what is written in tens; 0xfff... passes it, and no message could name it
    return number


def _float(text: str) -> float:
    return float(text.lower().replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))


# Tag without its prefix -> reader; it raises ValueError or KeyError where the text is none of its kind.
SCALARS: dict[str, Callable[[str], Any]] = {
    "str": as_text,
    "null": lambda _: None,
    "bool": _bool,
    "int": _int,
    "float": _float,
    "timestamp": as_text,
}
