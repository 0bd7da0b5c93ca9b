"""One rule, or the table of all, for a terminal and as plain JSON types."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from typing import Any

from dsgen.linting.rules import Rule
from dsgen.report.tables import table

__all__ = ["data", "listing", "page", "releases"]

_LONGEST = 110  # columns of running text
_WIDE = 130  # columns from which the table leaves half a line for the words
_OPTIONS = {"hardware": "--hw", "loads": "--args"}  # fact -> its option, where the two have other names
_BELOW = 8  # columns of what stands below a code


def page(rule: Rule, width: int) -> str:
    """Everything about one rule, with a final newline."""
    columns = max(min(width, _LONGEST), 40)
    parts = [f"{rule.name} ({rule.code}), {rule.severity}", _filled(rule.what, columns), _filled(rule.why, columns)]
    given = said_with(rule)
    if rule.example:  # a file that cannot be read at all has none
        parts.append(f"Example{f' ({given})' if given else ''}:\n{textwrap.indent(rule.example.strip(), '  ')}")
        parts.append(f"Instead:\n{textwrap.indent(rule.instead.strip(), '  ')}")
    parts.append(f"DeepSpeed: {releases(rule)}; dsgen: from {rule.added} on")
    if rule.evidence:
        lines = [textwrap.fill(item, columns, initial_indent="  ", subsequent_indent="    ") for item in rule.evidence]
        parts.append("\n".join(["Evidence:", *lines]))
    silence = f"Silence it: --ignore {rule.name}, or `# dsgen: ignore[{rule.name}]` where the file takes comments."
    parts.append(textwrap.fill(silence, columns, break_on_hyphens=False))
    return "\n\n".join(parts) + "\n"


def listing(rules: Iterable[Rule], width: int) -> str:
    """Every rule with what it finds, as a table where it has room, else below its name; with a final newline."""
    if width >= _WIDE:
        rows = [[rule.code, str(rule.severity), rule.name, rule.what] for rule in rules]
        return table(rows, width, ("code", "severity", "rule", "what is wrong"), indent=0) + "\n"
    indent = " " * _BELOW
    lines = []
    for rule in rules:
        lines.append(f"{rule.code}  {rule.severity!s:<8} {rule.name}")
        lines += textwrap.wrap(rule.what, width, initial_indent=indent, subsequent_indent=indent)
    return "".join(f"{line}\n" for line in lines)


def data(rule: Rule) -> dict[str, Any]:
    """A rule as plain JSON types, without its check."""
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": str(rule.severity),
        "what": rule.what,
        "why": rule.why,
        "example": rule.example,
        "instead": rule.instead,
        "given": json.loads(json.dumps(rule.given, default=_plain)),
        "evidence": list(rule.evidence),
        "since": rule.since,
        "until": rule.until,
        "added": rule.added,
        "reads": rule.reads,
    }


def releases(rule: Rule) -> str:
    """The releases a rule holds for, in words."""
    if rule.since and rule.until:
        return f"from {rule.since} until before {rule.until}"
    if rule.until:
        return f"before {rule.until}"
    return f"from {rule.since} on" if rule.since else "every known release"


def said_with(rule: Rule) -> str:
    """What the example is linted with besides, as options of `dsgen lint`; "" when nothing."""
    words = []
    for name, value in rule.given.items():
        option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
        values = sorted(value) if isinstance(value, (set, frozenset)) else [value]
        if name == "parameters":
            values = [f"(a file with {', '.join(value) or 'nothing'})"]
        if name == "loads":
            values = [f"(a program that {'; '.join(map(str, value))})"]
        words += [f"{option} {item}" for item in values]
    return " ".join(words)


def _filled(words: str, columns: int) -> str:
    return textwrap.fill(words, columns, break_on_hyphens=False)


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, (set, frozenset)) else str(value)
