"""Findings that have one cause become one finding, which names every key: a section without effect is one line."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from dsgen.shapes.findings import Edit, Finding, Fix, Move, Remove, Severity

__all__ = ["by_cause"]

_RULES = ("key-has-no-effect", "unread-key")  # their messages begin with the key, and go on with the cause
_TEMPLATE = "template-placeholder"  # a file that a script was to fill in has one fault, however many places it has
_ONE, _SEVERAL = " is still a placeholder: DeepSpeed reads the text ", ": DeepSpeed reads texts such as "
_DOES = ((" has no effect", " have no effect"), (" is a key ", " are keys "), ("it does nothing", "they do nothing"))


def by_cause(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, those of one cause as one at the place of the first.

    One cause is one rule, one severity, one section, the same sentence but for the key, and fixes of one kind, all of
    which remove the key or move it into the same section. Errors stay apart: each stops the run by itself.
    The placeholders of a file are one cause.

    Args:
        findings: In the order of the text; those that a person has answered are not among them.
    """
    groups: dict[object, list[Finding]] = {}
    for number, finding in enumerate(findings):
        groups.setdefault(_cause(finding) or number, []).append(finding)
    return tuple(
        group[0] if len(group) == 1 else _template(group) if group[0].rule == _TEMPLATE else _joined(group)
        for group in groups.values()
    )


def _cause(finding: Finding) -> object:
    fix = finding.fix
    if finding.rule == _TEMPLATE:
        return finding.rule, finding.severity
    if finding.rule not in _RULES or finding.severity is Severity.ERROR or fix is None or len(fix.edits) != 1:
        return None
    goes = _goes(fix.edits[0])
    if goes is None or not finding.message.startswith(f"{finding.path} "):
        return None
    section = finding.path.rpartition(".")[0]
    return finding.rule, finding.severity, section, fix.safe, goes, finding.message.removeprefix(finding.path)


def _goes(edit: Edit) -> str | None:
    """The section that an edit moves a key into under its own name; "" where it removes the key; else None."""
    if isinstance(edit, Remove):
        return ""
    if not isinstance(edit, Move):
        return None
    section, _, name = edit.to.rpartition(".")
    return section if section and name == edit.path.rpartition(".")[2] else None


def _template(group: Sequence[Finding]) -> Finding:
    """One finding for all places of a file that a script was to fill in."""
    names = f"{', '.join(finding.path for finding in group[:-1])} and {group[-1].path}"
    does = group[0].message.removeprefix(group[0].path).replace(_ONE, _SEVERAL, 1)
    does = does.replace(", and refuses it", ", and refuses them")
    return attrs.evolve(group[0], message=f"{names} are still placeholders{does}")


def _joined(group: Sequence[Finding]) -> Finding:
    """One finding for several keys of a section."""
    first = group[0]
    section = first.path.rpartition(".")[0]
    each = [finding.path.rpartition(".")[2] for finding in group]
    names = f"{', '.join(each[:-1])} and {each[-1]}"
    does = first.message.removeprefix(first.path)
    for one, several in _DOES:
        does = does.replace(one, several, 1)
    edits = tuple(edit for finding in group if finding.fix for edit in finding.fix.edits)
    into = _goes(edits[0])
    fix = Fix(
        f"move {names} into {into}" if into else f"remove {names}", edits, safe=first.fix is not None and first.fix.safe
    )
    return attrs.evolve(first, message=f"{f'{section}: ' if section else ''}{names}{does}", fix=fix)
