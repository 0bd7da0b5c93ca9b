"""The syntax trees of dsgen's modules, parsed once for the tests that look through all of them."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

__all__ = ["parsed"]


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The tree of a file."""
    return ast.parse(path.read_text("utf-8"))
