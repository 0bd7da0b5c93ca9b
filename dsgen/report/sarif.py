"""Findings as SARIF 2.1.0, the format of code scanning: rules with their help, results with places and fixes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dsgen.documents import editor
from dsgen.documents.document import Document
from dsgen.linting import launch_files, rules
from dsgen.linting.files import Linted
from dsgen.linting.rules import Rule
from dsgen.shapes.findings import Finding, Severity

__all__ = ["data"]

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_ROOT = "%SRCROOT%"  # code scanning takes it for the root of the repository
_FINGERPRINT = "dsgenFinding/v1"  # a new number when what goes into it changes


def data(linted: Sequence[Linted], root: Path, version: str | None = None, docs: str | None = None) -> dict[str, Any]:
    """One run as a SARIF log in plain JSON types.

    Args:
        linted: Every file.
        root: Folder that the names of the files are relative to, absolute.
        version: dsgen's own; None where it is not installed.
        docs: Address of the folder of the rules' pages, with a final slash; without one the rules name no page.
    """
    by_name = {rule.name: rule for rule in rules.RULES}
    by_rule = {finding.rule: finding for file in linted for finding in file.findings}
    places = {name: place for place, name in enumerate(sorted(by_rule, key=lambda name: by_rule[name].code))}
    driver: dict[str, Any] = {
        "name": "dsgen",
        **({"version": version, "semanticVersion": version} if version else {}),
        "rules": [_rule(by_name.get(name), by_rule[name], docs) for name in places],
    }
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "utf16CodeUnits",
                "artifacts": [{"location": _location(file.document.name, root)} for file in linted],
                "results": [result for file in linted for result in _results(file, places, root)],
            }
        ],
    }


def _rule(rule: Rule | None, finding: Finding, docs: str | None) -> dict[str, Any]:
    """The descriptor of a rule; the linter's own findings (a rule that broke) have no Rule."""
    what = rule.what if rule else "A rule of the linter itself broke."
    why = rule.why if rule else "The other rules still spoke. Please report the config."
    severity = rule.severity if rule else finding.severity
    markdown = f"{what}\n\n{why}"
    if rule:
        markdown += f"\n\nExample:\n\n```\n{rule.example}\n```\n\nInstead:\n\n```\n{rule.instead}\n```"
    said: dict[str, Any] = {
        "id": finding.code,
        "name": "".join(word.capitalize() for word in finding.rule.split("-")),
        "shortDescription": {"text": what},
        "fullDescription": {"text": f"{what} {why}"},
        "help": {"text": f"{what}\n\n{why}", "markdown": markdown},
        "defaultConfiguration": {"level": _LEVELS[severity]},
        "properties": {"tags": ["deepspeed"], "rule": finding.rule},
    }
    return {**said, "helpUri": f"{docs}{finding.rule}.md"} if docs else said


def _results(file: Linted, places: dict[str, int], root: Path) -> Iterator[dict[str, Any]]:
    where = _location(file.document.name, root)
    seen: Counter[tuple[str, str]] = Counter()
    for finding in file.findings:
        key = (finding.rule, finding.path)
        seen[key] += 1
        result = {
            "ruleId": finding.code,
            "ruleIndex": places[finding.rule],
            "level": _LEVELS[finding.severity],
            "message": {"text": finding.message},
            "locations": [_place(file.document, finding, where)],
            "partialFingerprints": {_FINGERPRINT: _fingerprint(file.document.name, finding, seen[key])},
        }
        fix = _fix(file.document, finding, where)
        yield {**result, "fixes": [fix]} if fix else result


def _place(document: Document, finding: Finding, where: dict[str, str]) -> dict[str, Any]:
    line = document.line(finding.line)
    start = _utf16(line[: finding.column - 1]) + 1
    region = {
        "startLine": finding.line,
        "startColumn": start,
        "endColumn": max(start, _utf16(line[: finding.end_column - 1]) + 1),
    }
    place: dict[str, Any] = {"physicalLocation": {"artifactLocation": where, "region": region}}
    if finding.path:
        place["logicalLocations"] = [{"fullyQualifiedName": finding.path}]
    return place


def _fix(document: Document, finding: Finding, where: dict[str, str]) -> dict[str, Any] | None:
    """The replacement that the edits make, as one region; None where the file's layout does not let them."""
    if finding.fix is None:
        return None
    try:
        edited = launch_files.edited if document.kind == "launch" else editor.apply
        after = edited(document, finding.fix.edits)
    except ValueError:
        return None
    if after == document.text:
        return None
    start, end, inserted = _changed(document.text, after)
    kind = "safe" if finding.fix.safe else "unsafe"
    replacement = {"deletedRegion": _region(document, start, end), "insertedContent": {"text": inserted}}
    changes = [{"artifactLocation": where, "replacements": [replacement]}]
    return {"description": {"text": f"{finding.fix.title} ({kind})"}, "artifactChanges": changes}


def _changed(before: str, after: str) -> tuple[int, int, str]:
    """Start and end of what differs in the text before, and what stands there after."""
    start, shortest = 0, min(len(before), len(after))
    while start < shortest and before[start] == after[start]:
        start += 1
    end = 0
    while end < shortest - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return start, len(before) - end, after[start : len(after) - end]


def _region(document: Document, start: int, end: int) -> dict[str, int]:
    (first, column), (last, end_column) = document.position(start), document.position(end)
    return {
        "startLine": first,
        "startColumn": _utf16(document.text[start - column + 1 : start]) + 1,
        "endLine": last,
        "endColumn": _utf16(document.text[end - end_column + 1 : end]) + 1,
    }


def _location(name: str, root: Path) -> dict[str, str]:
    """The file as a URI: relative to the root, or absolute for one elsewhere."""
    path = Path(name)
    if path.is_absolute() and not path.is_relative_to(root):
        return {"uri": path.as_uri()}
    inside = path.relative_to(root) if path.is_absolute() else path
    return {"uri": quote(inside.as_posix(), errors="replace"), "uriBaseId": _ROOT}


def _fingerprint(file: str, finding: Finding, number: int) -> str:
    """The same for one fault whatever moves above it: file, rule, key and how many of these came before."""
    said = "\0".join((file, finding.rule, finding.path, str(number)))
    return hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:32]


def _utf16(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
