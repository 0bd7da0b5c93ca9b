"""Which keys of a config each rule of the linter reads: recorded while it is asked about configs of all kinds.

What dsgen plans has no finding, so a rule can only speak of a rendered config where it reads a key that somebody wrote.
`dsgen.linting.rules.about` finds it by this record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from dsgen import targets
from dsgen.deepspeed import surface
from dsgen.documents.document import unwritten
from dsgen.documents.hjson import reader
from dsgen.linting.rules import RULES, Rule
from dsgen.linting.subjects import Facts, Subject
from dsgen.rendering import Config
from dsgen.rendering.judgement import facts

__all__ = ["text"]

_FIELDS = frozenset(field.name for field in attrs.fields(Facts))


class _Recorded(dict[str, Any]):
    """A section that notes what is read of it, and of the sections in it.

    A question for one key notes the key; whatever looks at all of them notes "section.*".
    """

    __hash__ = None  # as a dict

    def __init__(self, section: Mapping[str, Any], before: str, read: set[str]) -> None:
        super().__init__({name: _recorded(value, f"{before}{name}", read) for name, value in section.items()})
        self._before, self._read = before, read

    def _all(self) -> None:
        self._read.add(f"{self._before}*")

    def __contains__(self, key: object) -> bool:
        self._read.add(f"{self._before}{key}")
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self._read.add(f"{self._before}{key}")
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._read.add(f"{self._before}{key}")
        return super().get(key, default)

    def __iter__(self) -> Iterator[str]:
        self._all()
        return super().__iter__()

    def __len__(self) -> int:
        self._all()
        return super().__len__()

    def __eq__(self, other: object) -> bool:
        self._all()
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        self._all()
        return super().__ne__(other)

    def keys(self) -> Any:
        self._all()
        return super().keys()

    def values(self) -> Any:
        self._all()
        return super().values()

    def items(self) -> Any:
        self._all()
        return super().items()


def text(configs: Iterable[Config]) -> str:
    """The record as committed: a line for each rule, in the order of the codes.

    Args:
        configs: What dsgen renders, of many kinds. The examples of the rules are asked besides.
    """
    subjects = {config.to_json(): (config.tree, config.plan.job.version, facts(config.plan.job)) for config in configs}
    rows = [
        f"  {json.dumps(file)}: {json.dumps(_shortest(_reads(rule, subjects.values())))}"
        for file, rule in zip(RULES.files, RULES, strict=True)
    ]
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _shortest(read: set[str]) -> list[str]:
    """What was read, sorted; who looks at the whole config needs no more said."""
    return ["*"] if "*" in read else sorted(read)


def _reads(rule: Rule, subjects: Iterable[tuple[Mapping[str, Any], str, Facts]]) -> set[str]:
    """What a rule reads of all configs, its own examples among them."""
    read: set[str] = set()
    if rule.reads == "launch":
        return read
    for config, version, known in subjects:
        _ask(rule, config, version, known, None, read)
    said = Facts(**{name: value for name, value in rule.given.items() if name in _FIELDS})
    for example in (rule.example, rule.instead):
        config = reader.read(example, "<example>").config
        if isinstance(config, Mapping):
            _ask(rule, config, rule.given.get("deepspeed"), said, rule.given.get("target"), read)
    return read


def _ask(
    rule: Rule, config: Mapping[str, Any], version: str | None, known: Facts, target: str | None, read: set[str]
) -> None:
    """Ask one rule about one config, with nothing remembered from another rule's question."""
    recorded = _Recorded(config, "", read)
    subject = Subject(
        config=recorded,
        surface=surface.load(version),
        target=targets.find(target) if target else targets.guess(config),
        document=unwritten(recorded),
        facts=known,
    )
    tuple(rule.check(subject))


def _recorded(value: Any, path: str, read: set[str]) -> Any:
    return _Recorded(value, f"{path}.", read) if isinstance(value, Mapping) else value
