"""Findings as workflow commands: GitHub Actions shows each beside its line in a pull request."""

from __future__ import annotations

from collections.abc import Iterable

from dsgen.linting.files import Linted
from dsgen.shapes.findings import Finding, Severity

__all__ = ["text"]

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
# actions/toolkit, packages/core/src/command.ts: what a message and a property escape
_IN_A_MESSAGE = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_A_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def text(linted: Iterable[Linted]) -> str:
    """One line a finding, with a final newline; nothing when there is none."""
    return "".join(f"{_command(file.document.name, finding)}\n" for file in linted for finding in file.findings)


def _command(file: str, finding: Finding) -> str:
    properties = {
        "file": file,
        "line": finding.line,
        "col": finding.column,
        "endColumn": finding.end_column,
        "title": f"{finding.rule} ({finding.code})",
    }
    said = ",".join(f"{name}={str(value).translate(_IN_A_PROPERTY)}" for name, value in properties.items())
    fix = f"\nfix: {finding.fix.title} ({'safe' if finding.fix.safe else 'unsafe'})" if finding.fix else ""
    return f"::{_LEVELS[finding.severity]} {said}::{f'{finding.message}{fix}'.translate(_IN_A_MESSAGE)}"
