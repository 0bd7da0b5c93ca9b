"""A tree of linted files as tables: per rule, per file, and in all."""

from __future__ import annotations

import csv
import io
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from dsgen.linting.files import Linted
from dsgen.report.excerpts import printable
from dsgen.report.findings import assumed, plural
from dsgen.report.tables import table
from dsgen.shapes.findings import Finding, Severity

__all__ = ["data", "rule_table", "spreadsheet", "text"]

_LEVELS = ("errors", "warnings", "notes")
_HEADS = ("file", "target", "deepspeed", "code", "rule", "severity", "findings")


def text(linted: Sequence[Linted], width: int) -> str:
    """Both tables and the totals for a person, with a final newline; a file without findings is only counted."""
    counted = data(linted)
    rows = [
        [*(str(row[level] or "").rjust(len(level)) for level in _LEVELS), printable(row["file"])]
        for row in counted["by_file"]
        if any(row[level] for level in _LEVELS)
    ]
    parts = [rule_table(linted, width)] if rows else []
    parts += [table(rows, width, (*_LEVELS, "file"))] if rows else []
    closing = [_totals(counted["totals"]), assumed(linted)]
    parts.append("\n".join(textwrap.fill(words, width, break_on_hyphens=False) for words in closing if words))
    return "\n\n".join(parts) + "\n"


def rule_table(linted: Sequence[Linted], width: int) -> str:
    """The table of rules that found something, the most frequent first."""
    rows = [
        [str(row["findings"]).rjust(8), str(row["files"]).rjust(5), row["severity"], row["code"], row["rule"]]
        for row in _by_rule(linted)
    ]
    return table(rows, width, ("findings", "files", "severity", "code", "rule"))


def data(linted: Sequence[Linted]) -> dict[str, Any]:
    """The tables and totals as plain JSON types."""
    by_file = [
        {"file": file.document.name, "target": file.target, "deepspeed": file.deepspeed, **_levels(file.findings)}
        for file in linted
    ]
    failing = sum(bool(row["errors"]) for row in by_file)
    totals = {
        "files": len(linted),
        "files_with_findings": sum(bool(file.findings) for file in linted),
        "files_with_errors": failing,
        "share_with_errors": round(failing / len(linted), 4) if linted else 0.0,
        **_levels([finding for file in linted for finding in file.findings]),
    }
    return {"by_rule": list(_by_rule(linted)), "by_file": by_file, "totals": totals}


def spreadsheet(linted: Sequence[Linted]) -> str:
    """One row per file, rule and severity as CSV; a file without findings has one row that counts 0."""
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\n")
    rows.writerow(_HEADS)
    for file in linted:
        about = (file.document.name, file.target, file.deepspeed)
        kinds = Counter((item.code, item.rule, str(item.severity)) for item in file.findings)
        rows.writerows([(*about, *kind, count) for kind, count in sorted(kinds.items())] or [(*about, "", "", "", 0)])
    return written.getvalue()


def _totals(totals: dict[str, Any]) -> str:
    if not totals["files"]:
        return "no files"
    failing, faulty = totals["files_with_errors"], totals["files_with_findings"]
    share = f"{failing} of {plural(totals['files'], 'file')} ({totals['share_with_errors']:.0%})"
    counts = [plural(totals[f"{word}s"], word) for word in ("error", "warning", "note") if totals[f"{word}s"]]
    said = (
        f"{share} {'has' if failing == 1 else 'have'} an error; {faulty} {'has' if faulty == 1 else 'have'} a finding."
    )
    return f"{said} {', '.join(counts)}." if counts else said


def _by_rule(linted: Sequence[Linted]) -> Iterator[dict[str, Any]]:
    """One row per rule and severity (a rule may find both errors and warnings), the most frequent first."""
    counts: Counter[tuple[str, str, Severity]] = Counter()
    files: Counter[tuple[str, str, Severity]] = Counter()
    for file in linted:
        own = [(finding.code, finding.rule, finding.severity) for finding in file.findings]
        counts.update(own)
        files.update(set(own))
    for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        code, rule, severity = kind
        yield {"code": code, "rule": rule, "severity": str(severity), "files": files[kind], "findings": count}


def _levels(findings: Sequence[Finding]) -> dict[str, int]:
    counts = Counter(finding.severity for finding in findings)
    return {"errors": counts[Severity.ERROR], "warnings": counts[Severity.WARNING], "notes": counts[Severity.INFO]}
