"""The TOML files that speak to the linter: [tool.dsgen.lint] of a pyproject.toml, and the sidecar beside a config."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dsgen import catalog, targets
from dsgen.deepspeed import surface
from dsgen.jobs import scenarios
from dsgen.linting import said_jobs
from dsgen.linting.settings import ACCELERATORS, CLIENT_OPTIMIZERS, Settings, rules_named
from dsgen.linting.suppressions import Suppression
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.findings import Severity
from dsgen.shapes.near_misses import alike, offer

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["SIDECAR", "nearest_table", "parameter_names", "read", "read_table", "sidecar"]

SIDECAR = ".dsgen.toml"  # after the whole name of the config: ds_config.json.dsgen.toml
_FILE = "pyproject.toml"
_OFF = "off"
_TABLES = ("lint", "scenarios")  # of [tool.dsgen]; the second one is read by dsgen.checking


def read(folder: Path) -> Settings:
    """The settings that hold in a folder: of the nearest pyproject.toml, here or above, that has [tool.dsgen.lint].

    Raises:
        DsgenError: Such a file with an unknown key or a value of the wrong type, or no TOML.
    """
    told = nearest_table(folder, "lint")
    return Settings() if told is None else _settings(*told)


def nearest_table(folder: Path, name: str) -> tuple[Any, Path] | None:
    """The table [tool.dsgen.NAME] of the nearest pyproject.toml that has it, here or above, and that file.

    Raises:
        DsgenError: Such a file that is no TOML, or with another table of ours than there are.
    """
    for place in (folder, *folder.parents):
        said = toml(place / _FILE, mentions=b"dsgen")
        ours = said.get("tool", {}).get("dsgen") if isinstance(said.get("tool"), dict) else None
        if ours is not None:
            ours = read_table({"dsgen": ours}, {"dsgen": _same_table}, place / _FILE, "tool.")["dsgen"]
            tables = read_table(ours, dict.fromkeys(_TABLES, _same_table), place / _FILE, "tool.dsgen.")
            if name in tables:
                return tables[name], place / _FILE
    return None


def toml(file: Path, mentions: bytes = b"") -> dict[str, Any]:
    """What a TOML file holds; nothing when it is not there, cannot be read or does not hold the word `mentions`.

    Raises:
        DsgenError: It is no TOML.
    """
    try:
        content = file.read_bytes()
    except (OSError, ValueError):  # ValueError: a null character in the path of the linted file
        return {}
    if mentions not in content:
        return {}
    try:
        parsed: dict[str, Any] = tomllib.loads(content.decode("utf-8-sig").replace("\r\n", "\n"))
        return parsed
    except (UnicodeDecodeError, RecursionError, tomllib.TOMLDecodeError) as error:
        raise mistake(f"it is not TOML ({error})", where=file, code="unreadable") from None


Read = Callable[[Any, str, Path], Any]


def read_table(said: Any, shape: Mapping[str, Read], file: Path, before: str = "") -> dict[str, Any]:
    """A table of TOML with every value read by its key's reader.

    Args:
        said: What stands there.
        shape: Key -> reader; a reader takes the value, its full name and the file.
        before: What the full names of the keys start with.

    Raises:
        DsgenError: No table, an unknown key, or a value that its reader refuses.
    """
    if not isinstance(said, dict):
        raise mistake(f"{before.rstrip('.')} is {said!r}", must="it must be a table", where=file)
    for key in said.keys() - shape.keys():
        close = alike(key, shape)
        raise mistake(
            f"no setting {before}{key}",
            must=f"the settings are {', '.join(shape)}",
            where=file,
            todo=offer(close),
            code="unknown-name",
        )
    return {key: shape[key](value, f"{before}{key}", file) for key, value in said.items()}


def _settings(said: Any, file: Path) -> Settings:
    values = read_table(said, _SHAPE, file, "tool.dsgen.lint.")
    fields = {_FIELDS.get(key, key.replace("-", "_")): value for key, value in values.items()}
    wishes = {name: fields.pop(name) for name in said_jobs.WISHES if name in fields}
    return Settings(file=file, wishes=wishes, **fields)


def _same_table(value: Any, _: str, __: Path) -> Any:
    return value


def _wrong(value: Any, name: str, file: Path, must: str) -> DsgenError:
    return mistake(f"{name} is {value!r}", must=f"it must be {must}", where=file)


def _text(value: Any, name: str, file: Path) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(value, name, file, f'text: "{value}"' if isinstance(value, (int, float)) else "text")
    return value


def _texts(value: Any, name: str, file: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong(value, name, file, "a list of texts")
    return tuple(value)


def _rules(value: Any, name: str, file: Path) -> tuple[str, ...]:
    words = _texts(value, name, file)
    for word in words:
        rules_named(word, f"{file}: {name}")
    return words


def _whole(value: Any, name: str, file: Path) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _wrong(value, name, file, "a whole number of at least 1")
    return value


def _one_of(*choices: str) -> Read:
    def read_choice(value: Any, name: str, file: Path) -> str:
        if value not in choices:
            raise _wrong(value, name, file, f"one of {', '.join(choices)}")
        return str(value)

    return read_choice


def _severity(value: Any, name: str, file: Path) -> Severity:
    return Severity[_one_of(*(str(severity) for severity in Severity))(value, name, file).upper()]


def _release(value: Any, name: str, file: Path) -> str:
    said = _text(value, name, file)
    try:
        surface.load(said)
    except DsgenError as error:
        raise error.inside(f"{file}: {name}") from None
    return said


def _beside(value: Any, name: str, file: Path) -> str:
    """A file, relative to the settings."""
    said = _text(value, name, file)
    beside = file.parent / said
    return str(beside) if ("/" in said or beside.suffix) and beside.exists() else said


def _profile(kind: str) -> Read:
    """The reader of a profile's name or file."""

    def read_profile(value: Any, name: str, file: Path) -> str:
        said = _beside(value, name, file)
        try:
            catalog.find(kind, said)
        except DsgenError as error:
            raise error.inside(f"{file}: {name}") from None
        return said

    return read_profile


def _scenario(value: Any, name: str, file: Path) -> str:
    said = _beside(value, name, file)
    try:
        scenarios.read(said)
    except DsgenError as error:
        raise error.inside(f"{file}: {name}") from None
    return said


def _wish(value: Any, name: str, file: Path) -> Any:
    """A field of a scenario, as its own check reads it."""
    try:
        said_jobs.wishes({name.rpartition(".")[2].replace("-", "_"): value})
    except DsgenError as error:
        raise error.inside(f"{file}: {name}") from None
    return value


def _names(value: Any, name: str, file: Path) -> str:
    said = _beside(value, name, file)
    try:
        parameter_names(said)
    except DsgenError as error:
        raise error.inside(f"{file}: {name}") from None
    return said


def _ignores(value: Any, name: str, file: Path) -> dict[str, tuple[str, ...]]:
    shape = dict.fromkeys(value, _rules) if isinstance(value, dict) else {}
    return read_table(value, shape, file, f"{name}.")


def _severities(value: Any, name: str, file: Path) -> dict[str, Severity | None]:
    level = _one_of(_OFF, *(str(severity) for severity in Severity))
    shape = dict.fromkeys(value, level) if isinstance(value, dict) else {}
    words = read_table(value, shape, file, f"{name}.")
    for word in words:
        rules_named(word, f"{file}: {name}")
    return {word: None if said == _OFF else Severity[said.upper()] for word, said in words.items()}


_FIELDS = {"hw": "hardware"}
_SHAPE: Mapping[str, Read] = {
    "select": _rules,
    "ignore": _rules,
    "severity": _severity,
    "fail-on": _severity,
    "fail_on": _severity,  # as the option of Python's API and of other tools is spelt
    "target": _one_of(*(target.name for target in targets.TARGETS)),
    "deepspeed": _release,
    "world-size": _whole,
    "seq-len": _whole,
    "hw": _profile("hardware"),
    "model": _profile("model"),
    "network": _profile("network"),
    "accelerator": _one_of(*ACCELERATORS),
    "client-optimizer": _one_of(*CLIENT_OPTIMIZERS),
    "missing": _texts,
    "calls": _texts,
    "parameters": _names,
    "scenario": _scenario,
    **{name.replace("_", "-"): _wish for name in said_jobs.WISHES},
    "exclude": _texts,
    "per-file-ignores": _ignores,
    "severities": _severities,
}


def sidecar(config: str) -> tuple[Suppression, ...]:
    """What the file beside a config suppresses, for JSON has no comments: ds_config.json.dsgen.toml.

    Raises:
        DsgenError: It is no TOML, or has an unknown key, a wrong type, or the name of no rule.
    """
    file = Path(f"{config}{SIDECAR}")
    said = read_table(toml(file), {"ignore": _rules, "ignore-at": _places}, file)
    whole = [Suppression(where=f"{file}: ignore", word=word) for word in said.get("ignore", ())]
    return (*whole, *said.get("ignore-at", ()))


def parameter_names(file: str) -> tuple[str, ...]:
    """The names of a model's parameters from a file: a JSON list, or one a line.

    Raises:
        DsgenError: It cannot be read, or holds something else.
    """
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path with a null
        raise mistake(
            f"it cannot be read ({getattr(error, 'strerror', None) or error})", where=file, code="unreadable"
        ) from None
    if not text.lstrip().startswith("["):
        return tuple(line.strip() for line in text.splitlines() if line.strip())
    try:
        names = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise mistake(
            f"it is not JSON ({error})",
            must="it must be a list of names, or a name a line",
            where=file,
            code="unreadable",
        ) from None
    return _texts(names, "the list", Path(file))


def _places(value: Any, name: str, file: Path) -> tuple[Suppression, ...]:
    if not isinstance(value, list):
        raise _wrong(value, name, file, "a list of tables: [[ignore-at]]")
    return tuple(_place(item, f"{name}[{index}]", file) for index, item in enumerate(value))


def _place(value: Any, name: str, file: Path) -> Suppression:
    said = read_table(value, {"rule": _text, "path": _text, "reason": _text}, file, f"{name}.")
    for key in ("rule", "path"):
        if key not in said:
            raise mistake(f"{name} has no {key}", must="it must name a rule and a path", where=file, code="missing")
    rules_named(said["rule"], f"{file}: {name}.rule")
    return Suppression(where=f"{file}: {name}", word=said["rule"], path=said["path"])
