"""Profiles as lists and sheets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dsgen import catalog
from dsgen.report.tables import table
from dsgen.shapes.layers import show

__all__ = ["listing", "listing_data", "sheet", "sheet_data"]


def listing(kinds: Iterable[str], width: int = 80) -> str:
    """Names, titles and aliases of the profiles of some kinds, with a final newline."""
    parts = []
    for kind in kinds:
        profiles = [catalog.find(kind, name) for name in catalog.names(kind)]
        parts.append(f"{kind} ({len(profiles)})")
        parts.append(table([(profile.name, profile.title) for profile in profiles], width))
    return "\n".join(parts) + "\n"


def listing_data(kinds: Iterable[str]) -> dict[str, Any]:
    """The same as plain JSON types."""
    return {
        kind: [
            {"name": profile.name, "title": profile.title, "aliases": list(profile.aliases), "file": profile.file}
            for profile in (catalog.find(kind, name) for name in catalog.names(kind))
        ]
        for kind in kinds
    }


def sheet(profile: catalog.Profile, width: int = 80) -> str:
    """One profile: every fact in force with its reason, then the sources, with a final newline."""
    facts = _facts(profile)
    lines = [
        f"{profile.name}: {profile.title}" if profile.title else profile.name,
        f"  {profile.kind} profile, {profile.file}",
    ]
    if profile.extends:
        lines.append(f"  extends {profile.extends}")
    if profile.aliases:
        lines.append(table([("also called", ", ".join(profile.aliases))], width))
    lines.append(table([(fact["path"], show(fact["value"]), fact["reason"] or "") for fact in facts], width))
    if profile.sources:
        lines.append("sources")
        lines.append(table(profile.sources.items(), width))
    return "\n".join(lines) + "\n"


def sheet_data(profile: catalog.Profile) -> dict[str, Any]:
    """The same as plain JSON types."""
    return {
        "name": profile.name,
        "kind": profile.kind,
        "title": profile.title,
        "aliases": list(profile.aliases),
        "extends": profile.extends,
        "file": profile.file,
        "facts": _facts(profile),
        "sources": dict(profile.sources),
    }


def _facts(profile: catalog.Profile) -> list[dict[str, Any]]:
    """The overrides in force: a child's wins over its parent's."""
    winners = {override.path: override for override in profile.layer.overrides}
    return [
        {
            "path": path,
            "value": item.value,
            "reason": item.reason,
            "origin": str(item.origin),
            "source": profile.source_of(path.partition(".")[2]),
        }
        for path, item in winners.items()
    ]
