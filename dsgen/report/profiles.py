"""Profiles as lists and sheets."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

from dsgen import catalog
from dsgen.layers import show

__all__ = ["listing", "listing_data", "sheet", "sheet_data"]

WIDTH = 80


def listing(kinds: Iterable[str]) -> str:
    """Names and titles of the profiles of some kinds, with a final newline."""
    lines = []
    for kind in kinds:
        found = [catalog.find(kind, name) for name in catalog.names(kind)]
        width = max((len(profile.name) for profile in found), default=0)
        lines.append(f"{kind} ({len(found)})")
        lines.extend(f"  {profile.name:<{width}}  {profile.title}".rstrip() for profile in found)
    return "\n".join(lines) + "\n"


def listing_data(kinds: Iterable[str]) -> dict[str, Any]:
    """The same as plain JSON types."""
    return {
        kind: [
            {"name": profile.name, "title": profile.title, "aliases": list(profile.aliases), "file": profile.file}
            for profile in (catalog.find(kind, name) for name in catalog.names(kind))
        ]
        for kind in kinds
    }


def sheet(profile: catalog.Profile) -> str:
    """One profile: every fact in force with its reason, then the sources, with a final newline."""
    facts = _facts(profile)
    lines = [f"{profile.name}: {profile.title}" if profile.title else profile.name,
             f"  {profile.kind} profile, {profile.file}"]
    if profile.extends:
        lines.append(f"  extends {profile.extends}")
    if profile.aliases:
        lines.append(_wrap(f"also called {', '.join(profile.aliases)}", 2))
    left = max(len(fact["path"]) for fact in facts) if facts else 0
    values = max((len(show(fact["value"])) for fact in facts), default=0)
    for fact in facts:
        head = f"  {fact['path']:<{left}}  {show(fact['value']):<{min(values, 20)}}"
        lines.append(f"{head}  # {fact['reason']}" if fact["reason"] else head.rstrip())
    if profile.sources:
        lines.append("sources")
        lines.extend(_wrap(f"{name}: {source}", 2) for name, source in profile.sources.items())
    return "\n".join(lines) + "\n"


def sheet_data(profile: catalog.Profile) -> dict[str, Any]:
    """The same as plain JSON types."""
    return {
        "name": profile.name, "kind": profile.kind, "title": profile.title, "aliases": list(profile.aliases),
        "extends": profile.extends, "file": profile.file, "facts": _facts(profile), "sources": dict(profile.sources),
    }


def _facts(profile: catalog.Profile) -> list[dict[str, Any]]:
    """The overrides in force: a child's wins over its parent's."""
    winners = {override.path: override for override in profile.layer.overrides}
    return [
        {"path": path, "value": item.value, "reason": item.reason, "origin": str(item.origin),
         "source": profile.source_of(path.partition(".")[2])}
        for path, item in winners.items()
    ]


def _wrap(words: str, indent: int) -> str:
    return textwrap.fill(words, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 4),
                         break_long_words=False, break_on_hyphens=False)
