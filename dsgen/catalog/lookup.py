"""Profile names and files to layers: the built-in profiles, the user's own, and override files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from dsgen.catalog.doubts import SOLD, doubt_of, doubt_of_config
from dsgen.catalog.profile_index import SUFFIXES, built_in, entries, exists, yaml_files
from dsgen.catalog.sheets import AUTO, KINDS, Sheet, hugging_face_sheet, natural, read_sheet
from dsgen.shapes.errors import DsgenError, mistake, nearest
from dsgen.shapes.layers import Layer, Origin, Override, Rank, show
from dsgen.shapes.near_misses import alike as almost
from dsgen.shapes.near_misses import offer
from dsgen.shapes.value import Value

__all__ = ["KINDS", "Profile", "find", "names", "override_layer", "profile", "weights_of"]

_HUB = "https://huggingface.co/"
PATH_VARIABLE = "DSGEN_PROFILE_PATH"  # folders with a person's own profiles, separated as in PATH

_MAKERS = ("", "nvidia", "geforce", "tesla", "amd", "instinct", "generation")  # words of a card that tell nothing
_COUNTED = re.compile(  # 8xH100, and H100x8; the x of RTX 4080 counts nothing
    r"(\d+)\s*[x*]\s*(\S.*)|(\S.*?)\s*(?<!t)[x*]\s*(\d+)", re.IGNORECASE
)
_APPLES = re.compile(r"(?:apple|mac|mps|metal).*|(?:apple )?m[1-9](?:[ -]?(?:pro|max|ultra))?", re.IGNORECASE)
_NUMBERED = re.compile(r"[a-z]*(?<!\d)\d{2,4}(?!\d)")  # what tells one card from another: 4080, p100
_FOUR_DIGITS = re.compile(r"(?<!\d)\d{4}(?!\d)")  # of a GeForce: the words behind them tell others apart (3060 Ti)

_MIRRORS = ("unsloth", "nousresearch")  # unslothai/unsloth unsloth/models/mapper.py says of what
_REBUILT = ("phi-",)  # which unsloth stores as a Llama
_FOUR_BITS = re.compile(r"(?:-unsloth)?-bnb-4bit$")

_CACHED = "models--"  # before organisation--model in the cache of the hub

_GIVEN = {"hardware": "--hw"}  # the option that takes a profile, where it is not called as its kind
_LONGEST_CHAIN = 20  # profiles that extend each other; the built-in ones need four


@attrs.frozen(repr=False, eq=False)
class Profile(Value):
    """One named YAML file about one thing, its parents' overrides included.

    `own` has the paths that its file itself writes; `measurements` what `dsgen calibrate` was told of the machine.
    """

    name: str
    kind: str
    title: str
    aliases: tuple[str, ...]
    extends: str | None
    sources: Mapping[str, str] = attrs.field(eq=False)
    file: str
    layer: Layer
    own: frozenset[str] = frozenset()
    measurements: tuple[Mapping[str, Any], ...] = attrs.field(default=(), eq=False)

    def source_of(self, fact: str) -> str | None:
        """Where a fact of this profile comes from (`gpu_memory`)."""
        return self.sources.get(fact) or self.sources.get("default")


def find(kind: str, name: str) -> Profile:
    """The profile of a kind with this name, alias or path.

    Raises:
        DsgenError: Unknown (with the nearest names), of another kind, or broken.
    """
    name = _without_address(name)
    if kind == "hardware" and name == AUTO:
        return _at_hand()
    if _is_path(name):
        return _from_path(kind, name)
    sheet = _named(kind, name)
    if sheet is not None:
        return _doubted(_resolve(sheet, ()), doubt_of(sheet.name, name))
    if name and exists(name):
        return _from_path(kind, name)
    sheet = _card(name) if kind == "hardware" else _mirrored(name) if kind == "model" else None
    if sheet is not None:
        return _doubted(_resolve(sheet, ()), doubt_of(sheet.name, name))
    raise _unknown(kind, name)


def profile(name: str) -> Profile:
    """The profile with this name, of whatever kind; names are unique among all kinds.

    Raises:
        DsgenError: Unknown, with the nearest names.
    """
    name = _without_address(name)
    if name == AUTO:
        return _at_hand()
    if _is_path(name):
        return _from_path(None, name)
    for kind in KINDS:
        sheet = _named(kind, name)
        if sheet is not None:
            return _resolve(sheet, ())
    if (sheet := _card(name) or _mirrored(name)) is not None:
        return _resolve(sheet, ())
    raise _unknown("", name)


def weights_of(name: str) -> str:
    """Where the weights of a model that is named so lie: its repository, or a folder; "" where that is not said."""
    name = _without_address(name)
    if _is_path(name) or exists(name):
        return name if exists(str(_expanded(name) / "config.json")) else ""
    return name if "/" in name else ""


def names(kind: str, *, whole: bool = False) -> tuple[str, ...]:
    """All profile names of a kind, the user's own included, sorted with 7b before 13b.

    Args:
        kind: One of KINDS.
        whole: Leave out those that extend another.
    """
    own = {sheet.name: sheet.extends for sheet in _user_sheets(kind)}
    shipped = {entry["name"]: entry["extends"] for entry in entries().values() if entry["kind"] == kind}
    every = {**shipped, **own}
    return tuple(sorted((name for name, parent in every.items() if not (whole and parent)), key=natural))


def override_layer(file: str) -> Layer:
    """A `-f` file as a SITE layer: the sections of a profile, or DeepSpeed keys as DeepSpeed writes them.

    Raises:
        DsgenError: Unreadable or broken; with file and line.
    """
    from dsgen.documents.yaml.reader import entries, read_text

    if not file:
        raise mistake("-f names no file", must="it must name a YAML file", code="missing")
    overrides: list[Override] = []
    for entry in entries(read_text(Path(file)), file):
        kind = entry.value if entry.path == "kind" and isinstance(entry.value, str) and entry.value in KINDS else None
        if kind or entry.path == "hw" or (entry.path in KINDS and isinstance(entry.value, str)):
            raise mistake(
                f"{entry.path} is {show(entry.value)}",
                must=f"a file of overrides has sections; this one is a {'profile' if kind else 'scenario'}",
                where=f"{file}:{entry.line}",
                todo=f"Give it without -f: {_GIVEN.get(kind, f'--{kind}') if kind else 'dsgen plan'} {file}.",
            )
        overrides.append(Override(entry.path, entry.value, Origin(file, entry.line), Rank.SITE, entry.comment))
    return Layer(file, Rank.SITE, tuple(overrides))


def _card(name: str) -> Sheet | None:
    """The sheet of a card as its driver or a shop calls it: "NVIDIA GeForce RTX 3090", "RTX 3060 12 GB"."""
    from dsgen.detecting.cards import profile_of  # most names are those of profiles

    words = [word for word in re.split(r"[\s_-]+", name.casefold()) if word not in _MAKERS]
    sheet = _named("hardware", profile_of(name) or "-".join(words)) if words else None
    sheet = sheet or _named("hardware", "".join(words))
    sold = SOLD.search(name.casefold())
    if sheet is not None or sold is None:
        return sheet
    card, memory = name[: sold.start()], f"{sold[1]}g"
    sheet = _named("hardware", card) or _card(card)
    if sheet is not None and memory in sheet.name.split("-"):
        return sheet
    kept = [word for word in re.split(r"[\s_-]+", card.casefold()) if word not in _MAKERS]
    return _named("hardware", "-".join((*kept, memory)))  # A100 40 GB, where an A100 is the one of 80


def _doubted(chosen: Profile, doubt: str) -> Profile:
    """A profile that says what else the name that it was given may mean."""
    return attrs.evolve(chosen, layer=chosen.layer._replace(doubt=doubt)) if doubt else chosen


def _mirrored(name: str) -> Sheet | None:
    """The sheet of a model in a repository that holds another's weights again, in 4 bits or as they are."""
    organisation, _, model = name.casefold().partition("/")
    if organisation not in _MIRRORS or model.startswith(_REBUILT):
        return None
    return _named("model", _FOUR_BITS.sub("", model))


def _at_hand() -> Profile:
    """The profile of this machine."""
    from dsgen.catalog.detected import sheet  # a render for another machine asks nothing of this one

    return _resolve(sheet(), ())


def _without_address(name: str) -> str:
    """The name of a repository that was pasted as its address on the hub."""
    return name.removeprefix(_HUB).rstrip("/") if name.startswith(_HUB) else name


def _is_path(name: str) -> bool:
    """Whether a person meant a file; a hub name such as meta-llama/Llama-2-7b-hf is an alias unless it exists here."""
    return name.endswith((*SUFFIXES, ".json")) or name.startswith((".", "/", "~")) or ("/" in name and exists(name))


def _expanded(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # ~somebody who has no home: then it is a folder of that name
        return Path(name)


def _from_path(kind: str | None, name: str) -> Profile:
    path = _expanded(name)
    if kind == "model" and not name.endswith((*SUFFIXES, ".json")) and not exists(str(path)):
        raise _absent(name)
    file = path / "config.json" if exists(str(path / "config.json")) else path
    if kind == "model" and not name.endswith(SUFFIXES) and file.is_dir():
        base = "Of adapters name the base: base_model_name_or_path of adapter_config.json."
        todo, must = base if exists(str(file / "adapter_config.json")) else "", "the folder of a model has one"
        raise mistake("it is a folder without a config.json", must=must, where=name, todo=todo, code="unreadable")
    made = _resolve(_sheet_at(file, kind), ())
    if file.suffix != ".json":
        return made
    from dsgen.documents.yaml.reader import read_text

    return _doubted(made, doubt_of_config(read_text(file), str(file)))


def _absent(name: str) -> DsgenError:
    """The error of a model's folder that is not on this machine, with the known model that it is called after."""
    parts = (part.removeprefix(_CACHED).replace("--", "/") for part in reversed(Path(name).parts))
    known = next(filter(None, (_named("model", part) or _mirrored(part) for part in parts)), None)
    ways = "which known model has its shape (dsgen profiles list model), or where its config.json lies"
    todo = f"--model {known.name} is the model of that name." if known else f"--model says {ways}."
    return mistake(
        f"there is no {name} on this machine", must="the folder of a model has a config.json", todo=todo,
        code="unreadable",
    )  # fmt: skip


def _sheet_at(path: Path, kind: str | None) -> Sheet:
    from dsgen.documents.yaml.reader import read_text

    if path.suffix == ".json" and kind in (None, "model"):
        return hugging_face_sheet(path, read_text(path))
    return read_sheet(read_text(path), str(path), path.stem, kind)


def _resolve(sheet: Sheet, children: tuple[Sheet, ...]) -> Profile:
    """A sheet with its parents' overrides below its own."""
    chain = (sheet, *children)
    if sheet.extends is None:
        base_overrides: tuple[Override, ...] = ()
        sources: Mapping[str, str] = sheet.sources
    else:
        parent = _parent(sheet)
        names_ = " -> ".join([*(known.name for known in reversed(chain)), parent.name])
        if os.path.realpath(parent.file) in [os.path.realpath(known.file) for known in chain]:
            raise mistake(
                f"extends runs in a circle: {names_}",
                where=sheet.file,
                todo="Remove one of the extends.",
                code="contradiction",
            )
        if len(chain) > _LONGEST_CHAIN:
            raise mistake(
                f"more than {_LONGEST_CHAIN} profiles extend each other: {names_}",
                where=sheet.file,
                todo="Merge some of them.",
                code="contradiction",
            )
        base = _resolve(parent, chain)
        base_overrides, sources = base.layer.overrides, _sources(sheet, base)
    rank = KINDS[sheet.kind]
    own = tuple(
        Override(path, value, Origin(sheet.file, line), rank, why) for path, value, line, why in sheet.overrides
    )
    layer = Layer(sheet.name, rank, base_overrides + own)
    header = (sheet.name, sheet.kind, sheet.title, sheet.aliases, sheet.extends, sources, sheet.file)
    written = frozenset(path for path, *_ in sheet.overrides)
    return Profile(*header, layer, written, sheet.measurements)


def _sources(sheet: Sheet, base: Profile) -> dict[str, str]:
    """Where each fact comes from: the parent's source says nothing of a fact that the child writes anew."""
    anew = {path.partition(".")[2] for path, *_ in sheet.overrides}
    facts = [override.path.partition(".")[2] for override in base.layer.overrides]
    inherited = {fact: source for fact in facts if fact not in anew and (source := base.source_of(fact))}
    return {**inherited, **sheet.sources}


def _parent(sheet: Sheet) -> Sheet:
    name = sheet.extends or ""
    if _is_path(name):
        return _sheet_at(Path(sheet.file).parent / _expanded(name), sheet.kind)
    parent = _named(sheet.kind, name, besides=sheet.file)
    if parent is None and name == sheet.name:
        raise mistake(
            f"extends runs in a circle: {name} -> {name}",
            where=sheet.file,
            todo="Remove the extends.",
            code="contradiction",
        )
    if parent is None:
        raise _unknown(sheet.kind, name).inside(sheet.file)
    return parent


def _unknown(kind: str, name: str) -> DsgenError:
    known: dict[str, str] = {}
    for entry in entries().values():
        if kind in ("", entry["kind"]):
            for alias in (entry["name"], *entry["aliases"]):
                known[alias] = entry["name"]
    for path, _ in _user_files(kind or "hardware"):
        known[path.stem] = path.stem
    counted = _COUNTED.fullmatch(name.strip()) if kind == "hardware" else None
    number, card = (counted[1] or counted[4], counted[2] or counted[3]) if counted is not None else ("", name)
    if number.isdigit() and card.isdigit() and int(card) < int(number):  # 4090x2
        number, card = card, number
    told = _with_words(name, known.values()) if kind == "model" else ()
    alike = (*told, *nearest(card, known.values()), *nearest(card, known))  # names before aliases
    close = tuple(dict.fromkeys(known[match] for match in alike))[:3]
    listing = f"(dsgen profiles list{' ' + kind if kind else ''})"
    todo = f"{offer(close)}  {listing}" if close else f"{listing[1:-1]} shows all of them"
    if kind == "hardware" and _APPLES.fullmatch(name.strip()):
        todo = f"Apple's GPUs are not among them: name the machine that will train, or --hw cpu.  {listing}"
    elif number and (sheet := _named(kind, card) or _card(card)) is not None:
        todo = f"Say --hw {sheet.name} --gpus {number}.  {listing}"
    elif number:
        todo = f"{todo}\n  How many there are: --gpus {number}."
    elif kind == "hardware" and (
        _FOUR_DIGITS.search(name) or any(word not in " ".join(known) for word in _NUMBERED.findall(name.casefold()))
    ):
        likely = offer(dict.fromkeys(known[one] for one in almost(card, known)))
        rest = f"{likely}  {listing}" if likely else f"{listing[1:-1]} shows those that are known."
        sold = SOLD.search(name.casefold())
        gib = sold[1] if sold is not None else 16
        todo = f"Say its memory in the place of --hw, such as --gpu-memory {gib}GiB.\n  {rest}"
    if kind in ("", "model") and ("/" in name or (kind and not almost(name, known))):
        todo = f"{todo}\n  Another model of the hub: download its config.json, and give the path of that."
    other = next((other for other in KINDS if kind and built_in(other, name)), None)
    return mistake(
        f"no {kind + ' ' if kind else ''}profile named {name!r}",
        todo=todo,
        must=f"it names a {other} profile" if other else None,
        code="unknown-name",
    )


def _with_words(name: str, names: Iterable[str]) -> list[str]:
    """The names that have every word of what was typed, the highest number first: llama-3.1-8b for llama-8b."""
    names, words = tuple(names), name.casefold().split("-")
    if any(one.startswith(name.casefold()) for one in names):  # the nearest are those
        return []

    def has(parts: list[str], word: str) -> bool:
        return any(part == word or (word.isalpha() and part.startswith(word)) for part in parts)

    close = [one for one in dict.fromkeys(names) if all(has(one.split("-"), word) for word in words)]
    return sorted(close, key=natural, reverse=True)


def _named(kind: str, name: str, besides: str = "") -> Sheet | None:
    """The sheet with a name: a person's own file shadows a built-in profile, whose aliases come before theirs."""
    wanted, besides = name.casefold(), os.path.realpath(besides)
    mine = (file for file in _user_files(kind) if os.path.realpath(file[0]) != besides)
    for path, given in mine:
        if path.stem.casefold() == wanted:
            sheet = _sheet_at(path, given)
            if sheet.kind == kind:
                return sheet
    shipped = built_in(kind, name)
    if shipped is not None or not os.environ.get(PATH_VARIABLE):
        return shipped
    others = [sheet for sheet in _user_sheets(kind, skip_broken=True) if os.path.realpath(sheet.file) != besides]
    called = next((sheet for sheet in others if wanted in map(str.casefold, (sheet.name, *sheet.aliases))), None)
    return called or next(filter(None, (sheet.variant(name) for sheet in others)), None)


def _user_files(kind: str) -> Iterator[tuple[Path, str | None]]:
    """A person's own files where DSGEN_PROFILE_PATH points; those in a folder named after the kind are of that kind."""
    for entry in os.environ.get(PATH_VARIABLE, "").split(os.pathsep):
        if entry:
            yield from ((path, None) for path in yaml_files(_expanded(entry)))
            yield from ((path, kind) for path in yaml_files(_expanded(entry) / kind))


def _user_sheets(kind: str, skip_broken: bool = False) -> Iterator[Sheet]:
    """A person's own profiles of a kind; a broken one matters to a list of them, and not to a search for another."""
    for path, given in _user_files(kind):
        try:
            sheet = _sheet_at(path, given)
        except DsgenError:
            if skip_broken:
                continue
            raise
        if sheet.kind == kind:
            yield sheet
