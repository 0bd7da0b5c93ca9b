"""A DeepSpeed config file to the dictionary it holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dsgen.documents.yaml.reader import entries, read_text
from dsgen.shapes.errors import mistake

__all__ = ["read"]


def read(path: str) -> dict[str, Any]:
    """A config file: JSON, or JSON with comments and trailing commas, which DeepSpeed reads too.

    Raises:
        DsgenError: Unreadable, neither, a key twice, or no map at the top.
    """
    text = read_text(Path(path))
    try:
        found = json.loads(text, object_pairs_hook=lambda pairs: _once(pairs, path))
    except RecursionError:
        raise mistake("it nests too deep", must="a config is a few levels deep", where=path) from None
    except json.JSONDecodeError as error:
        if not text.strip():
            raise mistake("it is empty", must="it must hold a DeepSpeed config", where=path) from None
        if text.lstrip().startswith("{") and not _is_yaml(text, path):
            raise mistake(f"not JSON: {error.msg}", where=f"{path}:{error.lineno}:{error.colno}") from None
        return _from_yaml(text, path)
    if not isinstance(found, dict):
        raise mistake(f"the top level is a {type(found).__name__}", must="a DeepSpeed config is a map", where=path)
    return found


def _once(pairs: list[tuple[str, Any]], path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise mistake(
                f"{key} is given twice in one map", must="a key stands once: DeepSpeed refuses duplicates", where=path
            )
        found[key] = value
    return found


def _is_yaml(text: str, path: str) -> bool:
    from dsgen.shapes.errors import DsgenError

    try:
        entries(text, path)
    except DsgenError:
        return False
    return True


def _from_yaml(text: str, path: str) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for entry in entries(text, path):
        *parents, key = entry.path.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise mistake(
                    f"{parent} is both a value and a map", must="a key stands once", where=f"{path}:{entry.line}"
                )
        node[key] = entry.value
    return tree
