"""One profile file as written, or a Hugging Face config: its header and its own overrides, parents not yet resolved."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from dsgen.shapes.errors import mistake, nearest
from dsgen.shapes.layers import Rank, show
from dsgen.shapes.near_misses import offer

__all__ = ["AUTO", "KINDS", "Sheet", "hugging_face_sheet", "json_map", "natural", "read_sheet"]

KINDS = {"hardware": Rank.HARDWARE, "model": Rank.MODEL, "network": Rank.NETWORK, "training": Rank.TRAINING}

AUTO = "auto"  # the hardware profile of the machine at hand, which dsgen.detecting asks

_HEADER = ("name", "kind", "title", "aliases", "extends", "hub", "source", "measurements")


class Sheet(NamedTuple):
    """A profile file: who it is, where its facts come from, and (path, value, line, comment) of each override.

    `hub` holds the repositories on the Hugging Face hub that have this architecture, each with the facts that its own
    config.json says otherwise; `measurements` what `dsgen calibrate` was told of a machine, as maps.
    """

    name: str
    kind: str
    title: str
    aliases: tuple[str, ...]
    extends: str | None
    sources: dict[str, str]
    file: str
    overrides: tuple[tuple[str, Any, int | None, str | None], ...]
    hub: tuple[tuple[str, dict[str, Any]], ...] = ()
    measurements: tuple[dict[str, Any], ...] = ()

    def variant(self, wanted: str) -> "Sheet | None":
        """The sheet of the repository that a name means, with its organisation or without, in any case; or None."""
        for repository, facts in self.hub:
            folded = repository.casefold()
            if wanted.casefold() in (folded, folded.rpartition("/")[2]):
                return self._of(repository, facts) if facts else self
        return None

    def _of(self, repository: str, facts: dict[str, Any]) -> "Sheet":
        said = {f"{self.kind}.{fact}": value for fact, value in facts.items()}
        why = f"as the config.json of {repository} says"
        kept = tuple(item for item in self.overrides if item[0] not in said)
        source = f"https://huggingface.co/{repository}/blob/main/config.json"
        return self._replace(
            sources={**self.sources, **dict.fromkeys(facts, source)},
            overrides=(*kept, *((path, value, None, why) for path, value in said.items())),
        )


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
    from dsgen.documents.yaml.reader import entries

    header: dict[str, Any] = {"name": stem, "title": "", "aliases": [], "hub": (), "measurements": ()}
    sources: dict[str, str] = {}
    overrides = []
    for entry in entries(text, file):
        top, _, rest = entry.path.partition(".")
        where = f"{file}:{entry.line}"
        if top == "source":
            if not isinstance(entry.value, str):
                raise mistake(
                    f"{entry.path} is {show(entry.value)}",
                    where=where,
                    must="a source is text: a document and its address",
                )
            sources[rest or "default"] = entry.value
        elif entry.path in _HEADER:
            header[entry.path] = _header_value(entry.path, entry.value, where)
        elif "." in entry.path or entry.value is None or entry.value == {}:
            if entry.value != {}:
                overrides.append((entry.path, entry.value, entry.line, entry.comment))
        else:
            facts, own = _facts(), kind or str(header.get("kind", "hardware"))
            meant = [facts.get(one, one) for one in nearest(entry.path, (*_HEADER, *facts))]
            raise mistake(
                f"unknown key {entry.path}",
                must=f"a profile's header has {', '.join(_HEADER)}",
                where=where,
                todo=offer(meant, f"A fact stands below {own}: dsgen profiles new {own} NAME shows them all."),
                code="unknown-name",
            )
    if kind is None and "kind" not in header:
        raise mistake(
            "it names no kind",
            must=f"it must be one of {', '.join(KINDS)}",
            where=file,
            todo="Add a line such as kind: hardware.",
            code="missing",
        )
    own_kind = str(header.get("kind", kind))
    if kind is not None and own_kind != kind:
        raise mistake(f"it is a {own_kind} profile", must=f"a {kind} profile is needed here", where=file)
    if header["hub"] and own_kind != "model":
        raise mistake(f"hub stands in a {own_kind} profile", must="only a model has repositories", where=file)
    if header["measurements"] and own_kind != "hardware":
        raise mistake(f"measurements stand in a {own_kind} profile", must="only hardware is measured", where=file)
    if not overrides and "extends" not in header:
        raise mistake(
            "it says nothing",
            must=f"a profile holds facts, such as {own_kind}:",
            where=file,
            todo=f"dsgen profiles new {own_kind} NAME writes a template.",
            code="missing",
        )
    return Sheet(
        header["name"],
        own_kind,
        header["title"],
        tuple(header["aliases"]),
        header.get("extends"),
        sources,
        file,
        tuple(overrides),
        header["hub"],
        header["measurements"],
    )


def _facts() -> dict[str, str]:
    """Every fact and wish by its last name, as a person writes it who forgot the section."""
    import attrs

    from dsgen.shapes.profiles import SECTIONS, yaml_name

    sections = reversed(SECTIONS.items())  # of a name that several have the first section's is meant
    return {
        yaml_name(one.name): f"{section}.{yaml_name(one.name)}" for section, of in sections for one in attrs.fields(of)
    }


def _header_value(key: str, value: Any, where: str) -> Any:
    if key == "aliases":
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        raise mistake(f"aliases is {show(value)}", must="it must be a list of names", where=where)
    if key == "hub":
        return _repositories(value, where)
    if key == "measurements":
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            return tuple(value)
        raise mistake(f"measurements is {show(value)}", must="it must be a list of maps, as dsgen calibrate writes it",
                      where=where)  # fmt: skip
    if key == "kind" and value not in KINDS:
        close = nearest(str(value), KINDS)
        raise mistake(
            f"kind is {show(value)}",
            must=f"it must be one of {', '.join(KINDS)}",
            where=where,
            todo=offer(close[:1]),
        )
    if not isinstance(value, str) or not value:
        raise mistake(
            f"{key} is {show(value)}",
            must="it must be text",
            where=where,
            todo=f'Write {key}: "{value}".' if isinstance(value, (int, float)) else None,
        )
    return value


def _repositories(value: Any, where: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    """The list `hub`: names, or maps of a name and the facts in which that repository differs."""
    repositories = []
    for item in value if isinstance(value, list) else (None,):
        facts = dict(item) if isinstance(item, dict) else {"name": item}
        name = facts.pop("name", None)
        if not isinstance(name, str) or not name:
            raise mistake(
                f"hub is {show(value)}",
                must="it must be a list of repositories, such as Qwen/Qwen2.5-7B",
                where=where,
                todo="One that differs is a map: {name: Qwen/Qwen2.5-7B-Instruct, max_positions: 32768}.",
            )
        repositories.append((name, facts))
    return tuple(repositories)


def hugging_face_sheet(path: Path, text: str) -> Sheet:
    """A model from the text of a Hugging Face config.json, named after its folder.

    Raises:
        DsgenError: No JSON, a key twice, or no model that dsgen knows.
    """
    from dsgen.families.hf_config import model_from_hf

    facts = model_from_hf(json_map(text, str(path)), str(path))
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    overrides = tuple((f"model.{fact}", value, None, None) for fact, value in facts.items())
    return Sheet(name, "model", name, (), None, {"default": str(path)}, str(path), overrides)


def json_map(text: str, where: str) -> dict[str, Any]:
    """A Hugging Face config.json as a map.

    Raises:
        DsgenError: No JSON, a key twice, or no map.
    """
    if not text.strip():
        raise mistake("it is empty", must="it must hold a model's config", where=where, code="unreadable")
    try:
        config = json.loads(text, object_pairs_hook=lambda pairs: _once(pairs, where))
    except json.JSONDecodeError as error:
        raise mistake(
            f"not JSON: {error.msg}", where=f"{where}:{error.lineno}:{error.colno}", code="unreadable"
        ) from None
    except RecursionError:
        raise mistake(
            "it nests too deep", must="a config is a few levels deep", where=where, code="unreadable"
        ) from None
    except ValueError:  # a number of more digits than Python reads
        raise mistake(
            "a number in it is too long", must="at most 4,300 digits are read", where=where, code="unreadable"
        ) from None
    if not isinstance(config, dict):
        raise mistake(
            f"the top level is {'null' if config is None else f'a {type(config).__name__}'}",
            must="a model's config is a map",
            where=where,
            code="unreadable",
        )
    return config


def _once(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for key, value in pairs:
        if key in entries:
            raise mistake(
                f"{show(key)} is given twice in one map", must="a key stands once", where=where, code="contradiction"
            )
        entries[key] = value
    return entries


def natural(name: str) -> tuple[tuple[int, float, str], ...]:
    """A sort key that puts 7b before 13b and 125m before 1b."""
    import re

    def part(text: str) -> tuple[int, float, str]:
        size = re.fullmatch(r"([0-9]+(?:[.][0-9]+)?)([mbt]?)", text)
        if size is None:
            return (1, 0.0, text)
        return (0, float(size[1]) * {"": 1, "m": 1e6, "b": 1e9, "t": 1e12}[size[2]], text)

    return tuple(part(piece) for piece in re.split(r"[-_ ]", name))
