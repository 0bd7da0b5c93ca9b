"""Plain values to HJSON with a comment behind each key: JSON but for its comments, so that hjson reads it back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["commented"]

_COLUMN = 52  # where comments start, when the value leaves room


def commented(values: Mapping[str, Any], comments: Mapping[str, str]) -> str:
    """A nested map as HJSON, indented, with a final newline.

    Args:
        values: Maps, lists and JSON scalars.
        comments: Dotted path of a leaf -> its comment.
    """
    return "\n".join(["{", *_lines(values, comments, "", 1), "}"]) + "\n"


def _lines(values: Mapping[str, Any], comments: Mapping[str, str], prefix: str, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for number, (key, value) in enumerate(values.items(), 1):
        path, comma = f"{prefix}{key}", "," if number < len(values) else ""
        name = json.dumps(key, ensure_ascii=False)
        if isinstance(value, Mapping) and value:
            yield f"{indent}{name}: {{"
            yield from _lines(value, comments, f"{path}.", depth + 1)
            yield f"{indent}}}{comma}"
            continue
        line = f"{indent}{name}: {json.dumps(value, ensure_ascii=False)}{comma}"
        comment = " ".join(comments.get(path, "").split())
        yield f"{line:<{_COLUMN}}  // {comment}" if comment else line
