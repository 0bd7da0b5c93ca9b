"""Safe fixes alone, each with the config before and after it, and what the real DeepSpeed then holds otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dsgen.effective import Effective, load_many
from dsgen.shapes.findings import Finding, Remove

__all__ = ["DEVICES", "Pair", "changed", "within"]

DEVICES = {f"zero_optimization.offload_{what}.device": what for what in ("optimizer", "param")}  # or by older names


class Pair(NamedTuple):
    """One fix alone: its finding, the program, the config before it and the one after it."""

    finding: Finding
    target: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]


def within(path: str, own: str) -> bool:
    return path == own or path.startswith(f"{own}.")


def changed(pairs: Iterable[Pair]) -> tuple[int, list[tuple[str, str, Any]]]:
    """How many configs DeepSpeed takes, and what it holds otherwise after a fix: rule, path, and the two values."""
    tried, compared, wrong = list(pairs), 0, []
    for target in {pair.target for pair in tried}:
        mine = [pair for pair in tried if pair.target == target]
        loaded = iter(load_many([config for pair in mine for config in (pair.before, pair.after)], target=target))
        for pair, before, after in zip(mine, loaded, loaded, strict=True):
            if before.refused is None:
                compared += 1
                wrong += _changes(pair.finding, before, after)
    return compared, wrong


def _changes(finding: Finding, before: Effective, after: Effective) -> list[tuple[str, str, Any]]:
    if after.refused is not None:
        return [(finding.rule, finding.path, str(after.refused))]
    edits = finding.fix.edits if finding.fix and finding.path in DEVICES else ()
    hangs = {edit.path for edit in edits if isinstance(edit, Remove)}  # on that device
    was, becomes = (
        {path: at for path, at in one.values.items() if not (within(path, finding.path) or path in hangs)}
        for one in (before, after)
    )
    above = {path for path in was if within(finding.path, path)}
    paths = [path for path in {**was, **becomes} if path not in above]
    return [
        (finding.rule, path, (was.get(path), becomes.get(path))) for path in paths if was.get(path) != becomes.get(path)
    ]
