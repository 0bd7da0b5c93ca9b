"""Findings that have one cause become one finding, which names every key: a section without effect is one line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import attrs

from dsgen.linting.consequences import rank
from dsgen.linting.rules.texts import listed, placeholders
from dsgen.shapes.findings import Edit, Finding, Fix, Move, Remove, Severity

__all__ = ["by_cause"]

_RULES = ("key-has-no-effect", "unread-key")  # their messages begin with the key, and go on with the cause
_TEMPLATE = "template-placeholder"  # a file that a script was to fill in has one fault, however many places it has
# Of keys that ask for different values of one key, its value is said: no effect while the stage is 0.
_UNLESS = re.compile(r" unless (\S+) .+; it is (.+)$")
_DOES = (
    (" has no effect", " have no effect"),
    (" is a key ", " are keys "),
    ("it does nothing", "they do nothing"),
    ("; it belongs", "; they belong"),
    ("a key of that name", "keys of these names"),
)


def by_cause(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, those of one cause as one at the place of the first.

    One cause is one rule, one severity, one section, the same sentence but for the key, and fixes of one kind, all of
    which remove the key or move it into the same section. Errors stay apart: each stops the run by itself.
    The placeholders of a file are one cause, and so is a fault with what comes of it (`consequences`).

    Args:
        findings: In the order of the text; those that a person has answered are not among them.
    """
    groups: dict[object, list[Finding]] = {}
    for number, finding in enumerate(_loudest(_explained(findings))):
        groups.setdefault(_cause(finding) or number, []).append(finding)
    return tuple(
        group[0] if len(group) == 1 else _template(group) if group[0].rule == _TEMPLATE else _joined(group)
        for group in groups.values()
    )


def _explained(findings: Sequence[Finding]) -> list[Finding]:
    """The findings less those that another one explains, which is as grave as they are and says what they say."""
    there = {(finding.rule, finding.path) for finding in findings}
    left = []
    for finding in findings:
        if finding.follows in there:
            continue
        graver = [one for one in findings if one.follows == (finding.rule, finding.path)]
        worst = min(graver, key=rank, default=finding)
        if worst.severity > finding.severity:
            said = f"{finding.message}. So {worst.message}"
            finding = attrs.evolve(finding, message=said, severity=worst.severity)
        left.append(finding)
    return left


def _loudest(findings: Sequence[Finding]) -> Iterator[Finding]:
    """The findings less the notes on a key of which another one speaks."""
    for finding in findings:
        others = [one for one in findings if one.path == finding.path and one is not finding]
        if finding.severity > Severity.INFO or not finding.path or all(rank(finding) <= rank(one) for one in others):
            yield finding


def _cause(finding: Finding) -> object:
    fix = finding.fix
    if finding.rule == _TEMPLATE:
        return finding.rule
    if finding.rule not in _RULES or finding.severity is Severity.ERROR or fix is None or len(fix.edits) != 1:
        return None
    goes = _goes(fix.edits[0])
    if goes is None or not finding.message.startswith(f"{finding.path} "):
        return None
    section = finding.path.rpartition(".")[0]
    does = _UNLESS.sub(r" while \1 is \2", finding.message.removeprefix(finding.path))
    return finding.rule, finding.severity, section, fix.safe, goes, does


def _goes(edit: Edit) -> str | None:
    """The section that an edit moves a key into under its own name; "" where it removes the key; else None."""
    if isinstance(edit, Remove):
        return ""
    if not isinstance(edit, Move):
        return None
    section, _, name = edit.to.rpartition(".")
    return section if section and name == edit.path.rpartition(".")[2] else None


def _template(group: Sequence[Finding]) -> Finding:
    """One finding for all places of a file that a script was to fill in: as grave as the gravest, with its text."""
    worst = min(group, key=rank)
    reads = worst.message.removeprefix(placeholders([worst.path], ""))
    message = placeholders([finding.path for finding in group], reads)
    return attrs.evolve(group[0], message=message, severity=worst.severity)


def _joined(group: Sequence[Finding]) -> Finding:
    """One finding for several keys of a section."""
    first = group[0]
    section = first.path.rpartition(".")[0]
    each = [finding.path.rpartition(".")[2] for finding in group]
    names = listed(each)
    said = {finding.message.removeprefix(finding.path) for finding in group}
    does = min(said) if len(said) == 1 else _UNLESS.sub(r" while \1 is \2", min(said))
    for one, several in _DOES:
        does = does.replace(one, several, 1)
    edits = tuple(edit for finding in group if finding.fix for edit in finding.fix.edits)
    into = _goes(edits[0])
    fix = Fix(
        f"move {names} into {into}" if into else f"remove {names}", edits, safe=first.fix is not None and first.fix.safe
    )
    return attrs.evolve(first, message=f"{f'{section}: ' if section else ''}{names}{does}", fix=fix)
