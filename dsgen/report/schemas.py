"""The JSON Schemas as text: of a DeepSpeed config by release, and of dsgen's own YAML files, each in one piece."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsgen.deepspeed import surface
from dsgen.shapes.data import data_root
from dsgen.shapes.errors import mistake, nearest
from dsgen.shapes.near_misses import offer

__all__ = ["deepspeed", "listing", "names", "own"]

_SUFFIX = ".schema.json"
_SHARED = "sections"  # only referred to


def names() -> tuple[str, ...]:
    """The kinds of YAML file that have a schema."""
    files = (data_root() / "schema" / "profile").glob(f"*{_SUFFIX}")
    return tuple(sorted(name for file in files if (name := file.name.removesuffix(_SUFFIX)) != _SHARED))


def deepspeed(version: str | None) -> str:
    """The schema of a DeepSpeed config.

    Args:
        version: A release line ("0.19") or a patch release of it, which has the line's schema; None is the newest.

    Raises:
        DsgenError: A release that is not known.
    """
    line = ".".join(surface.load(version).version.split(".")[:2])
    return (data_root() / "schema" / "deepspeed" / f"{line}{_SUFFIX}").read_text(encoding="utf-8")


def own(name: str) -> str:
    """The schema of one kind of YAML file, with everything it refers to inside.

    Raises:
        DsgenError: No such kind.
    """
    if name not in names():
        close = nearest(name, names())
        raise mistake(
            f"no schema named {name!r}",
            must=f"it must be one of {', '.join(names())}",
            todo=offer(close[:1], "A DeepSpeed config's is printed with --deepspeed."),
            code="unknown-name",
        )
    parts: dict[str, Any] = {}
    whole = _gathered(data_root() / "schema" / "profile" / f"{name}{_SUFFIX}", "#", parts)
    return f"{json.dumps({**whole, '$defs': parts} if parts else whole, indent=1, ensure_ascii=False)}\n"


def _gathered(file: Path, root: str, parts: dict[str, Any]) -> Any:
    """A schema file, the files it refers to put into `parts` by name, and every reference changed to match."""
    tree = json.loads(file.read_text(encoding="utf-8"))

    def changed(node: Any) -> Any:
        if isinstance(node, list):
            return [changed(item) for item in node]
        if not isinstance(node, Mapping):
            return node
        schema = {key: changed(item) for key, item in node.items() if key != "$schema" or root == "#"}
        if isinstance(node.get("$ref"), str):
            schema["$ref"] = placed(node["$ref"])
        return schema

    def placed(reference: str) -> str:
        other, _, pointer = reference.partition("#")
        if not other:
            return root + pointer
        name = f"deepspeed-{Path(other).name}" if "/" in other else Path(other).name
        name = name.removesuffix(_SUFFIX)
        if name not in parts:
            parts[name] = {}  # it is on its way: a file may refer to itself through another
            parts[name] = _gathered((file.parent / other).resolve(), f"#/$defs/{name}", parts)
        return f"#/$defs/{name}{pointer}"

    return changed(tree)


def listing() -> str:
    """What there is, for a person; ends without a line break."""
    lines = ["DeepSpeed configs (dsgen schema --deepspeed VERSION)"]
    lines += [f"  {line}  as of {surface.load(line).version}" for line in surface.known_versions()]
    lines.append("dsgen's own YAML files (dsgen schema NAME)")
    widest = max(map(len, names()))
    lines += [f"  {name:<{widest}}  {_about(name)}" for name in names()]
    return "\n".join(lines)


def _about(name: str) -> str:
    file = data_root() / "schema" / "profile" / f"{name}{_SUFFIX}"
    return str(json.loads(file.read_text(encoding="utf-8"))["description"])
