"""The text of a scenario that says a whole config: the job as fields, null for what a plan writes, then each key."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dsgen import catalog
from dsgen.catalog.sheets import AUTO
from dsgen.jobs.assembly import canonical
from dsgen.jobs.scenarios import FIELDS, Scenario
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.layers import Layer, Origin, Override, Rank, leaves
from dsgen.shapes.profiles import SECTIONS

__all__ = ["scenario_text"]

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")  # a key that YAML reads as text without quotes
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")  # and such a value
_READS_OTHERWISE = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))
_KINDS = {"hardware": "hw", "model": "model", "network": "network", "training": "training"}


def scenario_text(said: Scenario, config: Mapping[str, Any], name: str, path: str, version: str) -> str:
    """The scenario in YAML.

    Args:
        said: The job around the config.
        config: The config.
        name: What it is called.
        path: Where the scenario will lie.
        version: The release it is for.

    Raises:
        DsgenError: A key that no path can say.
    """
    lines = [
        f"# Written by dsgen adopt. It renders back to {name}, key by key.",
        *(f"{_KINDS[kind]}: {_names(kind, names, path)}" for kind, names in said.profiles.items() if names),
        *(f"deepspeed: {json.dumps(said.deepspeed)}" for _ in range(said.deepspeed is not None)),
    ]
    for field in FIELDS:
        if field in said.fields:
            value = said.fields[field]
            source = value.origin.source
            why = f"  # {source}" if not source.startswith("--") else ""
            lines.append(f"{field}: {_value(value.value)}{why}")
    lines.append("set:")
    lines += [f"  {wish}: {_value(value.value)}" for wish, value in said.sets]
    lines.append("  deepspeed: null  # nothing that a plan would write: the keys below are the whole config")
    odd = set(_odd(config, version))
    lines += _block(config, "  ", "", odd)
    lines += [f"  deepspeed.{key}: {_value(value)}" for key, value in leaves(config) if key in odd]
    return "\n".join(lines) + "\n"


def _names(kind: str, names: tuple[str, ...], path: str) -> str:
    listed = [_beside(kind, name, path) for name in names]
    return _value(listed[0] if len(listed) == 1 else listed)


def _beside(kind: str, name: str, path: str) -> str:
    """A profile's name, or the path of its file as the scenario's folder sees it."""
    here = Path(name).expanduser()
    if name == AUTO or not here.exists() or _is_known(kind, name):
        return name
    folder = os.path.abspath(Path(path).expanduser().parent)  # noqa: PTH100
    shown = os.path.relpath(here, folder)
    return shown if shown.startswith(".") else f"./{shown}"


def _is_known(kind: str, name: str) -> bool:
    """Whether a name that a file or folder has too means a profile."""
    if name.endswith((".yaml", ".yml", ".json")) or "/" in name:
        return False
    profile = catalog.find(kind, name)
    return name.casefold() in map(str.casefold, (profile.name, *profile.aliases))


def _odd(config: Mapping[str, Any], version: str) -> Iterator[str]:
    """The keys that dsgen cannot plan with, as the release does not read them or coerces their value."""
    for key, value in leaves(config):
        _check_key(key, config)
        item = Override(key, value, Origin("adopt"), Rank.SITE)
        try:
            canonical([Layer("adopt", Rank.SITE, (item,))], version)
        except DsgenError:
            yield key
        else:
            if key.partition(".")[0] in SECTIONS:
                yield key


def _check_key(key: str, config: Mapping[str, Any]) -> None:
    """Refuse a key with a dot in it: a path could not tell it from two."""
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            raise mistake(f"the key {key} has a dot in it", must="a path of a scenario parts keys with dots")
        node = node[part]


def _block(tree: Mapping[str, Any], indent: str, prefix: str, odd: set[str]) -> Iterator[str]:
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if path in odd:
            continue
        if isinstance(value, Mapping) and value:
            inner = list(_block(value, f"{indent}  ", f"{path}.", odd))
            if inner:
                yield f"{indent}{_key(key)}:"
                yield from inner
        else:
            yield f"{indent}{_key(key)}: {_value(value)}"


def _key(key: str) -> str:
    return key if _PLAIN.fullmatch(key) and key.lower() not in _READS_OTHERWISE else _quoted(key)


def _value(value: Any) -> str:
    """JSON is YAML; a plain word stands without quotes."""
    if isinstance(value, str) and _WORD.fullmatch(value) and value.lower() not in _READS_OTHERWISE:
        return value
    return _quoted(value)


def _quoted(value: Any) -> str:
    return "".join(map(_spelled, json.dumps(value, ensure_ascii=False)))


def _spelled(letter: str) -> str:
    """A letter as YAML takes it: what cannot be printed is its number."""
    return letter if letter.isprintable() else f"\\U{ord(letter):08x}"
