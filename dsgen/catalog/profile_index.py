"""The built-in profiles: their YAML files, and the index compiled from them.

Reading YAML with positions and comments takes tens of milliseconds, so the built-in profiles are also committed as
one compiled index. The index is never trusted blindly: an entry counts only while its checksum is the YAML file's.
"""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dsgen.catalog.sheets import KINDS, Sheet, read_sheet
from dsgen.shapes.data import data_root

__all__ = ["SUFFIXES", "built_in", "compiled", "entries", "exists", "index_text", "yaml_files"]

SUFFIXES = (".yaml", ".yml")


def exists(name: str) -> bool:
    """Whether there is a file or folder of a name that a person wrote."""
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # too long for a path, or a null byte
        return False


def yaml_files(folder: Path) -> list[Path]:
    """The YAML files in a folder, sorted; none where there is no folder."""
    return sorted(path for path in folder.glob("*.y*ml") if path.suffix in SUFFIXES) if folder.is_dir() else []


def built_in(kind: str, name: str) -> Sheet | None:
    """The built-in profile of a kind with this name or alias, or of a repository on the hub that it speaks of."""
    compiled_as = _entry(kind, name.casefold())
    if compiled_as is not None:
        sheet = _fresh(*compiled_as)
        return sheet.variant(name) or sheet
    path = data_root() / "profiles" / kind / f"{name}.yaml"  # a profile just added, not compiled yet
    if name == path.stem and exists(str(path)):
        return read_sheet(path.read_text("utf-8"), f"profiles/{kind}/{path.name}", path.stem, kind)
    return None


@functools.lru_cache(maxsize=1024)
def _entry(kind: str, wanted: str) -> tuple[str, dict[str, Any]] | None:
    """A file and what the index says of it; only the line that may be it is parsed, and not hundreds of sources."""
    quoted = json.dumps(wanted, ensure_ascii=False)
    for line in _lines_with(kind, quoted):
        file, entry = _parsed(line)
        if entry["name"] == wanted or wanted in entry["aliases"]:
            return file, entry
    for line in _lines_with(kind, quoted[1:], fold=True):  # a repository, with its organisation before it or without
        file, entry = _parsed(line)
        if any(wanted in (name.casefold(), name.casefold().rpartition("/")[2]) for name, _ in entry["hub"]):
            return file, entry
    return None


def _lines_with(kind: str, words: str, *, fold: bool = False) -> Iterator[str]:
    """The lines of the index about profiles of a kind that hold some words; with `fold` in any case."""
    for line in _index_lines():
        if line.startswith(f'"profiles/{kind}/') and words in (line.casefold() if fold else line):
            yield line


def _parsed(line: str) -> tuple[str, dict[str, Any]]:
    ((file, entry),) = json.loads(f"{{{line.rstrip(',')}}}").items()
    return file, entry


@functools.cache
def _fresh_bytes(file: str) -> bytes:
    return (data_root() / file).read_bytes()


def _checksum(content: bytes) -> str:
    """Tells an edited file from the compiled one; sha256 would load OpenSSL, 2 ms of every start."""
    return f"{zlib.crc32(content):08x}"


def _fresh(file: str, entry: Mapping[str, Any]) -> Sheet:
    """The compiled entry while the YAML file is the one it was compiled from, else the file itself."""
    written = _fresh_bytes(file)
    if _checksum(written) != entry["crc32"]:
        return read_sheet(written.decode("utf-8"), file, Path(file).stem, entry["kind"])
    facts = {key: value for key, value in entry.items() if key != "crc32"}
    lists = {name: tuple(map(tuple, entry[name])) for name in ("overrides", "hub")}
    lists["aliases"] = tuple(entry["aliases"])
    return Sheet(**{**facts, **lists, "file": file})


@functools.lru_cache(maxsize=1)
def entries() -> dict[str, Any]:
    """The compiled index: file -> what it says, with its checksum."""
    index: dict[str, Any] = json.loads("\n".join(_index_lines()))
    return index


@functools.lru_cache(maxsize=1)
def _index_lines() -> list[str]:
    path = data_root() / "profiles" / "index.json"
    return (path.read_text("utf-8") if path.is_file() else index_text()).split("\n")


def compiled() -> dict[str, Any]:
    """Every built-in profile as the index holds it, read from the YAML files themselves."""
    index: dict[str, Any] = {}
    for kind in KINDS:
        for path in yaml_files(data_root() / "profiles" / kind):
            file = f"profiles/{kind}/{path.name}"
            sheet = read_sheet(path.read_text("utf-8"), file, path.stem, kind)
            facts = {key: value for key, value in sheet._asdict().items() if key not in ("file", "measurements")}
            index[file] = {"crc32": _checksum(path.read_bytes()), **facts}
    return index


def index_text() -> str:
    """The compiled index as committed: one profile a line, so that a diff shows which changed."""
    rows = (f"{json.dumps(file)}: {json.dumps(entry, ensure_ascii=False)}" for file, entry in compiled().items())
    return "{\n" + ",\n".join(rows) + "\n}\n"
