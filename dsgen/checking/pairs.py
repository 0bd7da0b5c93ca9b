"""Which committed config belongs to which scenario, and which other files belong to the job.

`x.scenario.yaml` goes with `x.json` beside it, or `x.hjson`, or `ds_config.json` where it is the only scenario of its
folder; `[tool.dsgen.scenarios]` of a pyproject.toml says it otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from dsgen.frameworks import FRAMEWORKS
from dsgen.linting import sources
from dsgen.linting.setting_files import nearest_table, read_table
from dsgen.shapes.errors import mistake

__all__ = ["ENDINGS", "Pair", "is_named", "pair", "pairs"]

ENDINGS = (".scenario.yaml", ".scenario.yml")
TABLE = "scenarios"
DEEPSPEED = "deepspeed"  # the target that is given the config alone
_FORMS = (".json", ".hjson")
_ALONE = "ds_config.json"


@attrs.frozen(kw_only=True)
class Pair:
    """A scenario, the config that is committed for it, and the other files of the job.

    Attributes:
        scenario: Its path.
        config: Path of the config, whether it is there or not.
        files: Launch scripts and training files that name the config, or those that the settings name.
        target: The framework that is given the config; what else it is given lies beside it.
        resolve: Whether its "auto" are numbers.
        folder: Where its program starts, from which its files name one another: that of the pyproject.toml that names
            the scenario, else the scenario's own.
    """

    scenario: str
    config: str
    files: tuple[str, ...] = ()
    target: str = DEEPSPEED
    resolve: bool = False
    folder: str = "."


@attrs.frozen(kw_only=True)
class _Entry:
    """What the settings say of one scenario; paths as they stand on this machine."""

    scenario: Path
    config: Path
    files: tuple[Path, ...] | None
    folder: Path
    target: str = DEEPSPEED
    resolve: bool = False


def is_named(path: Path) -> bool:
    """Whether a file is a scenario by its name, or because the settings of its folder name it.

    Raises:
        DsgenError: Broken settings.
    """
    return path.name.endswith(ENDINGS) or _entry(path) is not None


def pair(scenario: str, config: str | None = None, target: str | None = None, resolve: bool = False) -> Pair:
    """A scenario and what is committed for it.

    Args:
        scenario: Its path.
        config: The config's path; by default what the settings say, else the one beside it.
        target: The framework that is given it; by default what the settings say, else none.
        resolve: Whether its "auto" are numbers; also where the settings say so.

    Raises:
        DsgenError: Broken settings, or they name a file that is not there.
    """
    path = Path(scenario)
    entry = _entry(path)
    there = Path(config) if config is not None else entry.config if entry is not None else _beside(path)
    named = entry.files if entry is not None else None
    files = named if named is not None else tuple(_naming(there, {path, there}))
    told = entry or _Entry(scenario=path, config=there, files=None, folder=path.parent)
    return Pair(
        scenario=_shown(path),
        config=_shown(there),
        files=tuple(map(_shown, files)),
        target=target or told.target,
        resolve=resolve or told.resolve,
        folder=_shown(told.folder),
    )


def pairs(folder: str, target: str | None = None, resolve: bool = False) -> tuple[Pair, ...]:
    """Every scenario in a folder and below it, in order of its path; one file is itself. For the rest see `pair`.

    Raises:
        DsgenError: Nothing is there, or broken settings.
    """
    root = Path(folder)
    if not root.is_dir():
        return (pair(folder, None, target, resolve),)
    listed = {path.resolve(): path for path in map(Path, sources.inside(folder)) if path.name.endswith(ENDINGS)}
    for entry in _entries(root):
        if entry.scenario.resolve().is_relative_to(root.resolve()):
            listed.setdefault(entry.scenario.resolve(), entry.scenario)
    if not listed:
        raise mistake(
            "no scenario is here",
            must=f"a scenario is named x{ENDINGS[0]}, or stands in [tool.dsgen.{TABLE}] of pyproject.toml",
            where=folder,
            code="missing",
        )
    return tuple(pair(_shown(path), None, target, resolve) for path in sorted(listed.values()))


def _beside(scenario: Path) -> Path:
    """The config that stands beside a scenario; the name it is to have where there is none."""
    ending = next((one for one in ENDINGS if scenario.name.endswith(one)), scenario.suffix)
    stem = scenario.name.removesuffix(ending)
    named = [scenario.with_name(f"{stem}{form}") for form in _FORMS]
    others = [one for ending in ENDINGS for one in scenario.parent.glob(f"*{ending}") if one.name != scenario.name]
    alone = [] if others else [scenario.with_name(_ALONE)]
    return next((one for one in (*named, *alone) if one.is_file()), named[0])


def _naming(config: Path, besides: set[Path]) -> Iterator[Path]:
    """The files of a config's folder that name it: what starts the job."""
    real = config.resolve()
    folder = config.parent if str(config.parent) else Path()
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_file() and path not in besides and real in {one.resolve() for one in sources.named_by(str(path))}:
            yield path


def _entry(scenario: Path) -> _Entry | None:
    """What the settings above a scenario say of it."""
    real = scenario.resolve()
    return next((entry for entry in _entries(scenario.parent) if entry.scenario.resolve() == real), None)


def _entries(folder: Path) -> tuple[_Entry, ...]:
    """The table of the nearest pyproject.toml that has one."""
    told = nearest_table(folder.absolute(), TABLE)
    if told is None:
        return ()
    table, file = told
    before = f"tool.dsgen.{TABLE}"
    if not isinstance(table, Mapping):
        raise mistake(f"{before} is {table!r}", must="it must be a table of scenarios and configs", where=file)
    return tuple(_read(str(name), value, f'{before}."{name}"', file) for name, value in table.items())


def _read(name: str, value: object, path: str, file: Path) -> _Entry:
    said = value if isinstance(value, Mapping) else {"config": value}
    shape = {"config": _text, "files": _texts, "target": _framework, "resolve": _switch}
    table = read_table(dict(said), shape, file, f"{path}.")
    scenario = file.parent / name
    if not scenario.is_file():
        raise mistake(f"{path} is no file", must="it must name a scenario, from the folder of this file", where=file)
    files = None if "files" not in table else tuple(file.parent / one for one in table["files"])
    for one in files or ():
        if not one.is_file():
            raise mistake(f"{path}.files names {one.name}, which is not there", where=file)
    config = file.parent / table["config"] if "config" in table else _beside(scenario)
    known = {name: table[name] for name in ("target", "resolve") if name in table}
    return _Entry(scenario=scenario, config=config, files=files, folder=file.parent, **known)


def _text(value: object, name: str, file: Path) -> str:
    if not isinstance(value, str) or not value:
        raise mistake(f"{name} is {value!r}", must="it must be the path of a config", where=file)
    return value


def _framework(value: object, name: str, file: Path) -> str:
    if value not in FRAMEWORKS:
        raise mistake(f"{name} is {value!r}", must=f"it must be one of {', '.join(FRAMEWORKS)}", where=file)
    return str(value)


def _switch(value: object, name: str, file: Path) -> bool:
    if not isinstance(value, bool):
        raise mistake(f"{name} is {value!r}", must="it must be true or false", where=file)
    return value


def _texts(value: object, name: str, file: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise mistake(f"{name} is {value!r}", must="it must be a list of paths", where=file)
    return tuple(value)


def _shown(path: Path) -> str:
    """A path as a person would name it: from here, where it lies below."""
    absolute = Path(os.path.normpath(path.absolute()))
    try:
        return str(absolute.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
