"""Findings that contradict each other: of two that want different things of one key, the graver one speaks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from dsgen.shapes.findings import Assign, Finding, Move, Remove, Severity

__all__ = ["agreed", "wants"]

_PROGRAM = (
    "DSG9"  # rules of the program that loads the config: they know what it does to a key before DeepSpeed sees it
)


def agreed(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, less what contradicts a graver one about the same key: a note goes, others lose their fix.

    Of two that are as grave, the one about the program that loads the config counts, then the one with the lower code.
    """
    wishes: dict[str, object] = {}
    kept = []
    for finding in sorted(findings, key=lambda one: (-one.severity, not one.code.startswith(_PROGRAM), one.code)):
        wished = dict(wants(finding))
        if any(wishes.get(path, want) != want for path, want in wished.items()):
            if finding.severity is not Severity.INFO:
                kept.append(attrs.evolve(finding, fix=None))
            continue
        wishes |= wished
        kept.append(finding)
    return kept


def wants(finding: Finding) -> Iterator[tuple[str, tuple[str, str]]]:
    """What the fix of a finding wants of each key that it touches: a value, another place, or that it goes."""
    wishes: dict[str, tuple[str, str]] = {}
    for edit in finding.fix.edits if finding.fix else ():
        if isinstance(edit, Assign):
            wishes[edit.path] = ("be", repr(edit.value))
        elif isinstance(edit, Remove):
            wishes[edit.path] = ("go", "")
        elif isinstance(edit, Move):
            wishes[edit.path] = ("go to", edit.to)
    yield from wishes.items()
