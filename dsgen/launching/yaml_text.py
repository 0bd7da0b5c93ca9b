"""Plain values as YAML that a person reads: maps, lists, and texts of several lines as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["yaml_text"]

# Words that every YAML reader takes as text, whatever its version: no yes or null, no number, no sign of YAML's.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_OTHER_THAN_TEXT = re.compile(r"(?i:y|n|yes|no|on|off|true|false|null|\.?inf|\.?nan|~)")
_FAR = re.compile(r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}")
_BLOCK_LINE = re.compile(r"[\x20-\x7e]*")


def yaml_text(value: Mapping[str, Any]) -> str:
    """One document, with a final newline."""
    return "\n".join(_map(value, 0)) + "\n"


def _map(value: Mapping[str, Any], depth: int) -> Iterator[str]:
    for key, item in value.items():
        yield from _item(f"{'  ' * depth}{_scalar(key)}:", item, depth + 1)


def _item(head: str, item: Any, depth: int) -> Iterator[str]:
    if isinstance(item, Mapping) and item:
        yield head
        yield from _map(item, depth)
    elif isinstance(item, Sequence) and not isinstance(item, str) and item:
        yield head
        for one in item:
            yield from _entry(one, depth)
    elif isinstance(item, str) and _is_block(item):
        yield f"{head} |"
        yield from (f"{'  ' * depth}{line}" if line else "" for line in item[:-1].split("\n"))
    else:
        yield f"{head} {_scalar(item)}"


def _entry(item: Any, depth: int) -> Iterator[str]:
    """An entry of a list; a map's first key stands behind the dash."""
    indent = "  " * depth
    if isinstance(item, Mapping) and item:
        first, *rest = _map(item, depth + 1)
        yield f"{indent}- {first.lstrip()}"
        yield from rest
    else:
        yield f"{indent}- {_scalar(item)}"


def _is_block(text: str) -> bool:
    """Whether a text can stand as it is: printable lines, the first one not blank or indented, one break at its end."""
    lines = text.split("\n")
    return (
        len(lines) > 2
        and lines[-1] == ""
        and lines[-2] != ""
        and not lines[0].startswith(" ")
        and lines[0] != ""
        and all(_BLOCK_LINE.fullmatch(line) for line in lines)
    )


def _scalar(value: Any) -> str:
    """A value on one line; JSON's texts, numbers and empty lists are YAML's too.

    Of JSON's texts letters beyond 16 bits are two escapes, which YAML reads as two letters; it has one of 32 bits.
    """
    if isinstance(value, str) and _PLAIN.fullmatch(value) and not _OTHER_THAN_TEXT.fullmatch(value):
        return value
    if isinstance(value, str):
        return _FAR.sub(lambda pair: f"\\U{ord(_joined(pair[0])):08x}", json.dumps(value))
    return json.dumps(value)


def _joined(escapes: str) -> str:
    """The letter of two escapes."""
    letter: str = json.loads(f'"{escapes}"')
    return letter
