"""What a linter says: a finding, how bad it is, and the edits that mend it."""

from __future__ import annotations

import enum
from typing import Any

import attrs

__all__ = ["Assign", "Edit", "Erase", "Fault", "Finding", "Fix", "Move", "Remove", "Severity", "Span"]


class Severity(enum.IntEnum):
    """How bad a finding is: what DeepSpeed refuses, what it does otherwise than written, what is worth knowing."""

    INFO = 1
    WARNING = 2
    ERROR = 3

    def __str__(self) -> str:
        return self.name.lower()


@attrs.frozen
class Span:
    """Offsets of characters in a text; `end` is exclusive."""

    start: int
    end: int


@attrs.frozen
class Assign:
    """The value at a dotted path becomes another; a path that is not there is added, with the sections around it."""

    path: str
    value: Any


@attrs.frozen
class Remove:
    """The key at a dotted path goes, and its value with it."""

    path: str


@attrs.frozen
class Move:
    """The key at a dotted path goes to another path with its value; in the same section this is a new name."""

    path: str
    to: str


@attrs.frozen
class Erase:
    """The characters of a span go, which say nothing of any key: a comma behind the last entry."""

    start: int
    end: int

    @property
    def path(self) -> str:
        """The file as a whole."""
        return ""


Edit = Assign | Remove | Move | Erase


@attrs.frozen
class Fix:
    """How to mend a finding.

    Attributes:
        title: What it does, in the imperative: "rename to autotp_size".
        edits: What changes, in order.
        safe: Whether the run stays the same, but for the finding's own key; of a config that DeepSpeed refuses, whether
            it has only one reading. An unsafe fix is an offer: it changes what runs today or decides for the person.
    """

    title: str
    edits: tuple[Edit, ...]
    safe: bool = True


@attrs.frozen
class Fault:
    """One place where a rule does not hold, as the rule itself says it.

    Attributes:
        path: Dotted key; the key that is missing when one is missing; "" for the file as a whole.
        message: One or two sentences: what is, what DeepSpeed makes of it, what must be.
        fix: How to mend it, where that is known.
        severity: Another severity than the rule's usual one.
        on: What to point at: the "key" or its "value".
        span: What to point at instead, where no path says it: broken syntax.
        because: The key whose value makes it a fault; when another rule speaks of that one, a general rule keeps still.
    """

    path: str
    message: str
    fix: Fix | None = None
    severity: Severity | None = None
    on: str = "key"
    span: Span | None = None
    because: str | None = None


@attrs.frozen(kw_only=True)
class Finding:
    """One fault of one file, with its rule and its place.

    Attributes:
        code: The rule's short, stable code: "DSG101".
        rule: The rule's name: "unknown-key".
        path: Dotted key, "" for the file as a whole.
        line: 1-based; of the key, or of the nearest section around it that is written.
        column: 1-based, in characters.
        end_column: Where what is pointed at ends in that line, exclusive.
        follows: Rule and path of the finding that explains this one, where one does.
    """

    code: str
    rule: str
    severity: Severity
    path: str
    message: str
    line: int = 1
    column: int = 1
    end_column: int = 1
    fix: Fix | None = None
    follows: tuple[str, str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; the fix as its title, whether it is safe, and its edits."""
        said = attrs.asdict(self, recurse=False, filter=attrs.filters.exclude(attrs.fields(Finding).follows))
        said["severity"] = str(self.severity)
        if self.fix is not None:
            edits = [{"edit": type(edit).__name__.lower(), **attrs.asdict(edit)} for edit in self.fix.edits]
            said["fix"] = {"title": self.fix.title, "safe": self.fix.safe, "edits": edits}
        return said
