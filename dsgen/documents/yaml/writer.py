"""Plain values to YAML with a comment behind each key; scalars are written as JSON, so they read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["commented"]

_COLUMN = 52  # where comments start, when the value leaves room


def commented(values: Mapping[str, Any], comments: Mapping[str, str]) -> str:
    """A nested map as YAML.

    Args:
        values: Maps, lists and JSON scalars.
        comments: Dotted path of a leaf -> its comment.
    """
    return "\n".join(_lines(values, comments, "", 0)) + "\n"


def _lines(values: Mapping[str, Any], comments: Mapping[str, str], prefix: str, depth: int) -> list[str]:
    lines = []
    for key, value in values.items():
        path, indent = f"{prefix}{key}", "  " * depth
        if isinstance(value, Mapping) and value:
            lines.append(f"{indent}{key}:")
            lines.extend(_lines(value, comments, f"{path}.", depth + 1))
            continue
        line = f"{indent}{key}: {json.dumps(value, ensure_ascii=False)}"
        comment = comments.get(path, "").replace("\n", " ")
        lines.append(f"{line:<{_COLUMN}}  # {comment}" if comment else line)
    return lines
