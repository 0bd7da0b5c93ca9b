"""Three rules of every severity, in the place of the real ones: what tests of settings and suppressions judge by."""

from __future__ import annotations

from dsgen.linting.rules import Rule
from dsgen.shapes.findings import Finding, Severity

KINDS = {
    "loud-key": ("DSG901", Severity.ERROR),
    "odd-key": ("DSG902", Severity.WARNING),
    "dull-key": ("DSG911", Severity.INFO),
}


def rule(name: str) -> Rule:
    code, severity = KINDS[name]
    words = {"what": "It is.", "why": "Because.", "example": "{}", "instead": "{}", "evidence": ()}
    return Rule(code=code, name=name, severity=severity, check=lambda _: (), **words)


def finding(name: str, path: str = "a", line: int = 1) -> Finding:
    code, severity = KINDS[name]
    return Finding(code=code, rule=name, severity=severity, path=path, message="m", line=line)
