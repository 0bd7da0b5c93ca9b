"""Findings that another one explains: they would be gone if its key had the name or the value that is meant.

Asked, not listed: the rules that spoke are asked again of the config as it would be without the cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from dsgen.deepspeed.keys import check_value, lookup
from dsgen.documents.editor import apply_to_config
from dsgen.linting.rules.autos import AUTO
from dsgen.linting.rules.unknown import unknown_keys
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Edit, Finding, Move, Remove, Severity

__all__ = ["Asked", "rank", "traced"]

Asked = Callable[[Subject, Collection[str]], set[tuple[str, str]]]
"""Rule and path of all that some rules, by name, say of a subject."""

_TEXT = "DSG0"  # rules of the text, which no other value mends
_DOTTED = "dotted-key"
_UNKNOWN = ("rejected-key", "unread-key")
_SWITCHES = ("enabled", "stage")  # what decides in a section whether the others mean anything
_MOST = 6  # configs that are tried for one cause


def rank(finding: Finding) -> tuple[int, bool, str]:
    """Which of several findings speaks first: the gravest, that of the program that loads the config, a lower code."""
    return -finding.severity, not finding.code.startswith("DSG9"), finding.code


def traced(subject: Subject, findings: Sequence[Finding], ask: Asked) -> list[Finding]:
    """The findings, each that another one explains with the rule and the path of that one.

    A cause is a key under a wrong name or in a wrong place, a value that cannot be what its key wants, or a missing
    switch or stage.
    """
    loud = [one for one in findings if one.severity > Severity.INFO and one.path and not one.code.startswith(_TEXT)]
    if len(loud) < 2:
        return list(findings)
    explained: dict[tuple[str, str], tuple[str, str]] = {}
    others = {_name(one) for one in loud if one.rule not in _UNKNOWN}  # a name is wrong whatever the others are
    written = {leaf[-2] for leaf in (*subject.leaves(), *subject.dotted())}.union(subject.document.places)
    for cause in sorted(loud, key=lambda one: (one.path not in written, *rank(one))):
        left = others - explained.keys() - {_name(cause)}
        if not left or _name(cause) in explained:
            continue
        unfit = _is_unfit(subject, cause.path)
        gone = {name for name in left if unfit and _within(name[1], cause.path)}
        left -= gone
        values = unfit or cause.path not in written
        for edits, config in _without(subject, cause, values, unfit) if left else ():
            still = ask(attrs.evolve(subject, config=config), {rule for rule, _ in left})
            gone |= {name for name in left if (name[0], _moved(name[1], edits)) not in still}
        explained |= dict.fromkeys(gone, _name(cause))
    return [attrs.evolve(one, follows=explained[_name(one)]) if _name(one) in explained else one for one in findings]


def _without(
    subject: Subject, cause: Finding, values: bool, unfit: bool
) -> Iterator[tuple[Sequence[Edit], Mapping[str, Any]]]:
    """The configs that may be meant where a finding is mended, and the edits that lead there.

    Args:
        subject: The config.
        cause: The finding.
        values: Whether its path may hold any value that fits, since none is there or one that does not.
        unfit: Whether one is there that does not.
    """
    tried: Iterable[Sequence[Edit]] = _names(subject, cause)
    if values:
        tried = [[Assign(cause.path, value)] for value in _values(subject, cause.path, unfit)]
    for number, edits in enumerate(tried):
        if number < _MOST:
            try:
                yield edits, _pruned(apply_to_config(subject.config, edits), edits)
            except ValueError:  # no room there
                continue


def _names(subject: Subject, cause: Finding) -> Iterator[Sequence[Edit]]:
    """The edits that give a key another name or place."""
    edits = cause.fix.edits if cause.fix is not None else ()
    if any(isinstance(edit, Move) for edit in edits) or cause.rule == _DOTTED:
        yield edits
    for unknown in unknown_keys(subject) if cause.rule in _UNKNOWN else ():
        if unknown.path == cause.path:
            yield from ([Move(cause.path, key)] for key in unknown.meant if not subject.written(key))


def _values(subject: Subject, path: str, unfit: bool) -> Iterator[Any]:
    """Values that a key takes, enough of them that each of the ways it may go is among them.

    Of what is not written only a switch or a stage decides so much that others rest on it.
    """
    for name in _SWITCHES if path in subject.surface.sections else ():
        if subject.surface.key(f"{path}.{name}") is not None:
            yield from ({name: value} for value in _values(subject, f"{path}.{name}", unfit))
    key = subject.surface.key(path, subject.config)
    if key is not None and key.enum:
        yield from (value for value in key.enum if value is not None)
    elif key is not None and "boolean" in key.types:
        yield from (True, False)
    elif unfit and (key is None or path in subject.surface.sections):
        yield {}
    elif unfit and key is not None:
        yield 1 if key.default is None and "integer" in key.types else key.default


def _pruned(config: Mapping[str, Any], edits: Sequence[Edit]) -> Mapping[str, Any]:
    """The config without the sections that a key has left empty."""
    for edit in edits:
        above = edit.path.rpartition(".")[0] if isinstance(edit, Move) else ""
        if above and lookup(config, above) == (True, {}):
            config = apply_to_config(config, (Remove(above),))
    return config


def _is_unfit(subject: Subject, path: str) -> bool:
    """Whether what is written at a path cannot be what its key wants, so that nothing that rests on it is known."""
    there, value = lookup(subject.config, path)
    key = subject.surface.key(path, subject.config)
    section = subject.surface.sections.get(re.sub(r"\[\d+\]", "[]", path), "free") != "free"
    if not there or key is None or key.removed:
        return there and section and not isinstance(value, Mapping)
    if value == AUTO:
        return not subject.target.fills(path)
    return not isinstance(value, Mapping) if section else check_value(key, value) is not None


def _moved(path: str, edits: Iterable[Edit]) -> str:
    """Where a path is after edits."""
    for edit in edits:
        if isinstance(edit, Move) and _within(path, edit.path):
            path = edit.to + path[len(edit.path) :]
    return path


def _within(path: str, own: str) -> bool:
    return path == own or path.startswith((f"{own}.", f"{own}["))


def _name(finding: Finding) -> tuple[str, str]:
    return finding.rule, finding.path
