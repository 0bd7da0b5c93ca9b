"""Committed texts against the texts of now: what differs, as a person reviews it, and the writing of new ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs

__all__ = ["Difference", "compare", "report", "update"]

MOST_SHOWN = 5  # files whose difference is printed; more is read in the version control after an update
MOST_LINES = 60  # of one file's difference
CONTEXT = 1  # unchanged lines around a change


@attrs.frozen
class Difference:
    """One file that is not what it should be: the committed text and the one of now; None where there is none."""

    path: Path
    committed: str | None
    now: str | None

    @property
    def kind(self) -> str:
        """missing, stale or changed."""
        return "missing" if self.committed is None else "stale" if self.now is None else "changed"


def compare(wanted: Mapping[Path, str], kept_in: Iterable[Path]) -> tuple[Difference, ...]:
    """What differs between the committed files and the wanted ones.

    Args:
        wanted: Path -> text.
        kept_in: Folders that may hold nothing but wanted files.
    """
    pairs = [Difference(path, _read(path), now) for path, now in wanted.items()]
    stale = [Difference(path, _read(path), None) for path in _strangers(wanted, kept_in)]
    return tuple(item for item in (*pairs, *stale) if item.committed != item.now)


def update(differences: Iterable[Difference]) -> None:
    """Make the committed files those of now."""
    for difference in differences:
        if difference.now is None:
            difference.path.unlink()
        else:
            difference.path.parent.mkdir(parents=True, exist_ok=True)
            difference.path.write_bytes(difference.now.encode("utf-8"))


def report(differences: Iterable[Difference], root: Path) -> str:
    """The counts, and the first few differences as unified diffs."""
    found = list(differences)
    counts = ", ".join(
        f"{number} {kind}"
        for kind in ("changed", "missing", "stale")
        if (number := sum(1 for item in found if item.kind == kind))
    )
    shown = [_diff(item, root) for item in found[:MOST_SHOWN]]
    more = [f"... and {len(found) - MOST_SHOWN} more files"] if len(found) > MOST_SHOWN else []
    return "\n".join([*shown, *more, f"golden: {counts}"])


def _diff(difference: Difference, root: Path) -> str:
    name = difference.path.relative_to(root).as_posix()
    if difference.kind != "changed":
        return f"{name}: {difference.kind}"
    before, after = (difference.committed or "").splitlines(), (difference.now or "").splitlines()
    lines = list(difflib.unified_diff(before, after, f"{name} (committed)", f"{name} (now)", n=CONTEXT, lineterm=""))
    cut = [f"... {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return "\n".join([*lines[:MOST_LINES], *cut])


def _read(path: Path) -> str | None:
    return path.read_bytes().decode("utf-8") if path.is_file() else None


def _strangers(wanted: Mapping[Path, str], folders: Iterable[Path]) -> list[Path]:
    return [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir()) if path not in wanted]
