"""One profile file as written: its header and its own overrides, parents not yet resolved."""

from __future__ import annotations

from typing import Any

import attrs

from dsgen.errors import mistake, nearest
from dsgen.layers import Rank

__all__ = ["KINDS", "Sheet", "read_sheet"]

KINDS = {"hardware": Rank.HARDWARE, "model": Rank.MODEL, "network": Rank.NETWORK, "training": Rank.TRAINING}

_HEADER = ("name", "kind", "title", "aliases", "extends", "source")


@attrs.frozen
class Sheet:
    """A profile file: who it is, where its facts come from, and (path, value, line, comment) of each override."""

    name: str
    kind: str
    title: str
    aliases: tuple[str, ...]
    extends: str | None
    sources: dict[str, str]
    file: str
    overrides: tuple[tuple[str, Any, int, str | None], ...]


def read_sheet(text: str, file: str, stem: str, kind: str | None) -> Sheet:
    """Parse one profile file.

    Args:
        text: Its YAML.
        file: What to call it in errors and origins.
        stem: Its name when it gives none.
        kind: The kind that is needed; None takes the kind it gives.

    Raises:
        DsgenError: Broken YAML, an unknown header key, or a profile of another kind.
    """
    from dsgen.yaml_reader import entries

    header: dict[str, Any] = {"name": stem, "title": "", "aliases": []}
    sources: dict[str, str] = {}
    overrides = []
    for entry in entries(text, file):
        top, _, rest = entry.path.partition(".")
        where = f"{file}:{entry.line}"
        if top == "source":
            if not isinstance(entry.value, str):
                raise mistake(f"{entry.path} is {entry.value!r}", must="a source is text: a document and its address",
                              where=where)
            sources[rest or "default"] = entry.value
        elif entry.path in _HEADER:
            header[entry.path] = _header_value(entry.path, entry.value, where)
        elif "." in entry.path or entry.value is None or entry.value == {}:
            if entry.value != {}:
                overrides.append((entry.path, entry.value, entry.line, entry.comment))
        else:
            close = nearest(entry.path, _HEADER)
            raise mistake(f"unknown key {entry.path}", must=f"a profile's header has {', '.join(_HEADER)}", where=where,
                          todo=f"Did you mean {' or '.join(close)}?" if close else "Put it under its section.")
    found = header.get("kind", kind)
    if found not in KINDS:
        raise mistake(f"kind is {found!r}" if found else "it names no kind", must=f"it must be one of {', '.join(KINDS)}",
                      where=file, todo="Add a line such as kind: hardware.")
    if kind is not None and found != kind:
        raise mistake(f"it is a {found} profile", must=f"a {kind} profile is needed here", where=file)
    return Sheet(header["name"], found, header["title"], tuple(header["aliases"]), header.get("extends"), sources, file,
                  tuple(overrides))


def _header_value(key: str, value: Any, where: str) -> Any:
    if key == "aliases":
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        raise mistake(f"aliases is {value!r}", must="it must be a list of names", where=where)
    if not isinstance(value, str) or not value:
        raise mistake(f"{key} is {value!r}", must="it must be text", where=where,
                      todo=f'Write {key}: "{value}".' if value else None)
    return value
