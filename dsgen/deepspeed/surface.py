"""What one DeepSpeed release reads: every key, when it has an effect, and what someone may have meant instead."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from dsgen.deepspeed.keys import Effect, Key, check_value, condition_met, condition_text, key_of, lookup, say, too_large
from dsgen.shapes import near_misses
from dsgen.shapes.data import data_root
from dsgen.shapes.errors import DsgenError, mistake

__all__ = ["Effect", "Key", "Surface", "known_versions", "load"]

_CLASSES = {"optimizer": ("optimizers", "torch_optimizers"), "scheduler": ("schedulers", "torch_schedulers")}
# Patterns compiled at first use: most runs never meet a path that needs one.
_METRICS = r"(.*\.curriculum_metrics)\.[^.]+(.*)"  # the names of the metrics are the user's own
_INDEX = r"\.?\[\d*\]|\.\d+(?=\.|$)"  # layer_specs.0.shape, layer_specs[0].shape
_LONGEST_PATH = 500  # letters; DeepSpeed's longest key has 110
_STAGE = "zero_optimization.stage"
_SUFFIX = ".keys.json"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Surface:
    """Every key that one DeepSpeed release reads.

    `sections` maps the path of a section to "strict" (an unknown key is an error at parse), "loose" (it is ignored
    without a word) or "free" (any name is read). `aliases` maps other accepted names to the keys they stand for,
    `mistaken` names that nothing reads to what people mean by them.
    """

    version: str
    sections: Mapping[str, str]
    aliases: Mapping[str, str]
    _table: Mapping[str, Mapping[str, Any]]
    _classes: Mapping[str, Any]
    mistaken: Mapping[str, str]
    _moved: Mapping[str, str]
    _known: dict[str, Key | None] = attrs.field(init=False, factory=dict)  # asked before
    _near: dict[str, tuple[str, ...]] = attrs.field(init=False, factory=dict)
    _names: dict[str, tuple[str, ...]] = attrs.field(init=False, factory=dict)  # key -> others

    @property
    def paths(self) -> tuple[str, ...]:
        """All dotted keys, sorted; `<name>` stands for a name the user makes up, `[]` for an item of a list."""
        return tuple(self._table)

    def key(self, path: str, config: Mapping[str, Any] | None = None) -> Key | None:
        """The key at a dotted path, or None when the release does not read it.

        An alias gives the key it stands for, whose `path` then differs. With a config, the arguments of the optimizer
        and of the schedule are those of their `type`; without one, those of any type.
        """
        path = self.aliases.get(path, path)[:_LONGEST_PATH]
        section, _, name = path.partition(".params.")
        if section in _CLASSES and name:
            kind = str(lookup(config or {}, f"{section}.type")[1])[:_LONGEST_PATH]
            asked = f"{path} of {kind}"
            if asked not in self._known:
                self._known[asked] = self._argument(path, section, name, kind)
            return self._known[asked]
        if path not in self._known:
            self._known[path] = self._general(path)
        return self._known[path]

    def _general(self, path: str) -> Key | None:
        general = path if path in self._table else re.sub(_METRICS, r"\1.<name>\2", re.sub(_INDEX, "[]", path))
        if general in self._table:
            return key_of(general, self._table[general], self.sections.get(_parent(general)) == "strict")
        if gone := next((p for p in _parents(general) if self._table.get(p, {}).get("removed")), None):
            return key_of(gone, self._table[gone], False)
        free = next((p for p in _parents(general) if self.sections.get(p) == "free"), None)
        return Key(path=path, description=f"Read by whoever reads {free}.") if free else None

    def default(self, path: str) -> Any:
        """The value in force when the key is absent; None also for a path that is no key."""
        key = self.key(path)
        return key.default if key else None

    def nearest(self, path: str) -> tuple[str, ...]:
        """The keys someone may have meant, best first, at most three; never one that does nothing."""
        if path not in self._near:
            names = {p: p for p in self._table if self._alive(p)} | dict(self.aliases)
            for section in _CLASSES:
                if path.startswith(f"{section}.params."):
                    names |= {p: p for p in self._arguments(section)}
            self._near[path] = near_misses.find(path, names, self.sections, self.mistaken)
        return self._near[path]

    def check_value(self, key: Key, value: object) -> str | None:
        """None when the release takes the value as it is meant, else what it must be (`keys.check_value`)."""
        return check_value(key, value) or too_large(value)

    def has_effect(self, path: str, config: Mapping[str, Any]) -> str | None:
        """None when the key does something in this config, else one sentence that says why not.

        What must happen outside the config (`Effect.needs`) cannot be seen here and counts as done; so does "auto".
        """
        hindered = self.hindrance(path, config)
        return hindered[1] if hindered else None

    def hindrance(self, path: str, config: Mapping[str, Any]) -> tuple[str, str] | None:
        """The key because of which another does nothing, and the sentence that says so; see `has_effect`."""
        key = self.key(path, config)
        if key is None:
            return path, f"{path} has no effect: DeepSpeed {self.version} does not read it."
        if key.effect.never:
            return path, f"{path} has no effect: {key.effect.never}."
        for section in _parents(_parent(key.path)):
            switch = f"{section}.enabled"
            value = self.value(switch, config)
            if switch in self._table and switch != key.path and value != "auto" and condition_met(value, [False]):
                return switch, f"{path} has no effect while {switch} is {say(value)}."
        failing = [self._failing(alternative, config) for alternative in key.effect.when]
        if not failing or not all(failing):
            return None
        where, wanted = next((pair for pair in failing[0] if pair[0] == _STAGE), failing[0][0])
        now = say(self.value(where, config))
        return where, f"{path} has no effect unless {where} {condition_text(wanted)}; it is {now}."

    def _alive(self, path: str) -> bool:
        facts = self._table[path]
        return not facts.get("removed") and not facts.get("deprecated") and "never" not in facts.get("effect", {})

    def _failing(self, condition: Mapping[str, Any], config: Mapping[str, Any]) -> list[tuple[str, Any]]:
        return [(p, wanted) for p, wanted in condition.items() if not condition_met(self.value(p, config), wanted)]

    def value(self, path: str, config: Mapping[str, Any]) -> Any:
        """What is in force at a path: as written, under another name, or the default."""
        if path not in self._names:
            others = (*self.aliases.items(), *self._moved.items())
            self._names[path] = (path, *(other for other, name in others if name == path))
        names = self._names[path]
        if path.startswith("bf16.") and "bf16" not in config:
            names = (*names, path.replace("bf16.", "bfloat16.", 1))
        for name in names:
            written, value = lookup(config, name)
            if written:
                return value
        if path == _STAGE and isinstance(config.get("zero_optimization"), bool):
            return int(config["zero_optimization"])
        return self._table.get(path, {}).get("default")

    def classes(self, section: str, *, torch: bool = False) -> tuple[str, ...]:
        """The types that DeepSpeed names itself for `optimizer` or `scheduler`, or those of torch."""
        return tuple(sorted(self._classes[_CLASSES[section][torch]]))

    def forms(self, section: str, name: object) -> tuple[Mapping[str, Any], ...] | None:
        """The signatures behind an optimizer or schedule, () for another package's; None when there is none such."""
        ours, torch = (self._classes[kind] for kind in _CLASSES[section])
        if not isinstance(name, str):
            return None
        entry = ours.get(name.lower() if section == "optimizer" else name, torch.get(name, False))
        return None if entry is False else tuple(_forms(entry))

    def required(self, section: str, name: str) -> tuple[str, ...] | None:
        """Arguments that an optimizer or schedule cannot do without; None when the release has none of that name."""
        forms = self.forms(section, name)
        return None if forms is None else tuple(forms[0]["required"] if forms else ())

    def _arguments(self, section: str) -> Iterator[str]:
        """The paths of all arguments of the classes DeepSpeed names itself."""
        for entry in self._classes[_CLASSES[section][0]].values():
            for form in _forms(entry):
                yield from (f"{section}.params.{name}" for name in (*form["params"], *form.get("also", ())))

    def _argument(self, path: str, section: str, name: str, kind: str) -> Key | None:
        """An argument of the optimizer or of the schedule of a type, by the signature of its class."""
        forms = self.forms(section, kind)
        if forms is None and path in self._table:
            return key_of(path, self._table[path], False)
        if forms == ():
            return Key(path=path, description="An argument of another package's class.", auto=True)
        if forms is None:
            every = (entry for kind in _CLASSES[section] for entry in self._classes[kind].values())
            forms = tuple(form for entry in every for form in _forms(entry))
        facts = self._table.get(path, {"auto": True})
        for form in forms:
            if name in form["params"]:
                shape = self._classes["params"].get(name, {})
                default = form["params"][name]
                return key_of(path, {"types": _types(default), **shape, **facts, "default": default}, False)
            if name in form.get("also", ()):
                return key_of(path, facts, False)
        return key_of(path, facts, False) if facts.get("deprecated") else None


def _forms(entry: Any) -> list[Mapping[str, Any]]:
    """The signatures behind one type: an optimizer has several (GPU, offload), another package's class none."""
    return [entry] if isinstance(entry, Mapping) else list(entry or ())


def _types(default: Any) -> tuple[str, ...]:
    """What a default of a signature says about the argument; a whole number may stand for any (weight_decay=0)."""
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}
    return (names[type(default)],) if type(default) in names else ()


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _parents(path: str) -> Iterator[str]:
    """The sections around a path, the innermost first; the path itself when it is one."""
    while path:
        yield path
        path = _parent(path)


@functools.cache
def known_versions() -> tuple[str, ...]:
    """The release lines whose surface is known, oldest first."""
    files = (data_root() / "schema" / "deepspeed").glob(f"*{_SUFFIX}")
    return tuple(sorted((file.name.removesuffix(_SUFFIX) for file in files), key=_numbers))


def load(version: str | None = None) -> Surface:
    """The surface of a DeepSpeed release.

    Args:
        version: A release line ("0.19": its newest known patch), a patch release ("0.19.6": without what came later in
            the line), or None for the newest of all.

    Raises:
        DsgenError: A release that is not known.
    """
    lines = known_versions()
    if version is None:
        return _load(lines[-1], None)
    if not isinstance(version, str):  # typed callers cannot; others write 0.19, and 0.10 would read as 0.1
        raise mistake(f"deepspeed is {version!r}", must="it must be one release, as text", todo='Such as "0.19".')
    line = ".".join(version.split(".")[:2])
    if line not in lines or (version != line and not _is_patch(version)):
        raise _unknown(version, lines)
    return _load(line, None if version in (line, _load(line, None).version) else version)


def _is_patch(version: str) -> bool:
    """Whether it is written as a patch release is: three numbers of at most four digits."""
    parts = version.split(".")
    return len(parts) == 3 and all(part.isascii() and part.isdigit() and len(part) <= 4 for part in parts)


@functools.cache
def _load(line: str, patch: str | None) -> Surface:
    data = json.loads((data_root() / "schema" / "deepspeed" / f"{line}{_SUFFIX}").read_text(encoding="utf-8"))
    newest: str = data["deepspeed"]
    if patch is not None and _numbers(patch) > _numbers(newest):
        raise _unknown(patch, known_versions())
    table = data["keys"] if patch is None else dict(_as_of(data["keys"], _numbers(patch)))
    return Surface(
        version=patch or newest,
        sections=data["sections"] | dict.fromkeys(_still_loose(data, patch), "loose"),
        aliases=data["aliases"],
        table=table,
        classes={name: data[name] for name in ("params", *_CLASSES["optimizer"], *_CLASSES["scheduler"])},
        mistaken=data["mistaken"],
        moved={p: f["replaced_by"] for p, f in table.items() if f.get("moved") and f["types"] == ["boolean"]},
    )


def _still_loose(data: Mapping[str, Any], patch: str | None) -> Iterator[str]:
    """The sections that became strict inside a line, after an older patch release of it."""
    for section, since in data.get("strict_since", {}).items() if patch else ():
        if _numbers(str(patch)) < _numbers(since):
            yield section


def _as_of(table: Mapping[str, Mapping[str, Any]], now: tuple[int, ...]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The keys as an older patch release of the line had them."""
    for path, facts in table.items():
        if _numbers(facts.get("since", "0")) > now:
            continue
        kept = dict(facts)
        if _numbers(facts.get("removed", "0")) > now:
            del kept["removed"]
            kept.pop("replaced_by", None)
        if "was" in facts and now < _numbers(facts["was"][0]):
            kept["default"] = facts["was"][1]
        yield path, kept


def _unknown(version: str, lines: tuple[str, ...]) -> DsgenError:
    newest = ", ".join(f"{line} (up to {_load(line, None).version})" for line in lines)
    return mistake(f"DeepSpeed {version} is not known", must=f"the known releases are {newest}", code="unknown-name")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
