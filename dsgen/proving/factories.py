"""The source of a person's own function, told apart by its hash: its module is looked for, and nothing is imported."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

__all__ = ["source_sha256"]

_SOURCE = ".py"


def source_sha256(factory: str, folder: str | None) -> str:
    """The hash of the module of package.module:function, and of every __init__.py on the way to it, which runs first.

    What that module imports in its turn is not told: nobody knows it without running it.

    Args:
        factory: package.module:function.
        folder: Where the package is looked for before the interpreter's own path.

    Returns:
        "" where there is no such module, or its source cannot be read: compiled code, a package without a file.
    """
    places: Sequence[str] | None = [*([folder] if folder else []), *sys.path]
    digest = hashlib.sha256()
    spec: ModuleSpec | None = None
    name = ""
    for part in factory.partition(":")[0].split("."):
        name = f"{name}.{part}".lstrip(".")
        try:
            spec = PathFinder.find_spec(name, places)
        except (ImportError, ValueError, OSError):
            return ""
        if spec is None:
            return ""
        content = _content(spec)
        if content is None and spec.submodule_search_locations is None:
            return ""
        digest.update(f"{name}\n".encode() + (content or b""))
        places = list(spec.submodule_search_locations or ())
    return digest.hexdigest() if spec is not None and spec.origin is not None else ""


def _content(spec: ModuleSpec) -> bytes | None:
    """The text of a module's file; None where it has none, or another one."""
    if spec.origin is None or not spec.origin.endswith(_SOURCE):
        return None
    try:
        return Path(spec.origin).read_bytes()
    except OSError:
        return None
