"""One place where a rule does not hold, and how grave that is."""

from __future__ import annotations

import enum

import attrs

__all__ = ["Finding", "Severity"]


class Severity(enum.Enum):
    """How grave a finding is; kept apart from the rule's code, so that it can change without renaming."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@attrs.frozen(kw_only=True)
class Finding:
    """One place where a rule does not hold."""

    rule: str
    code: str
    severity: Severity
    path: str
    message: str
