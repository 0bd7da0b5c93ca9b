"""Moves of public configs between releases, held against what each real release of DeepSpeed said of them.

benchmarks/data/deepspeed-releases.json has those verdicts: the newest patch of every release line that dsgen knows,
each with torch 2.13.0 on a CPU. benchmarks/releases.py asks them; all six could be installed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from effective_checks import contradictions

from dsgen.deepspeed import surface
from dsgen.effective import load_many
from dsgen.linting.asked import lint
from dsgen.linting.migrations import is_to_do, migrated
from dsgen.linting.taken import taken
from dsgen.shapes.findings import Severity

VERDICTS = Path(__file__).resolve().parents[2] / "benchmarks" / "data" / "deepspeed-releases.json"


def verdicts() -> Mapping[str, Any]:
    """Release -> what it said of the files, and of the moved ones."""
    said: dict[str, dict[str, dict[str, str | None]]] = {}
    for record in json.loads(VERDICTS.read_text(encoding="utf-8")):
        part = "migrated" if record["moved"] else "files"
        said.setdefault(record["release"], {"files": {}, "migrated": {}})[part][record["file"]] = record["refused"]
    return said


def test_every_release_line_was_asked() -> None:
    assert {release.rpartition(".")[0] for release in verdicts()} == set(surface.known_versions())


@pytest.mark.parametrize("release", list(verdicts()))
def test_what_a_release_refuses_is_never_nothing_to_change(publics: Sequence[Any], release: str) -> None:
    said, silent, unknown = verdicts()[release], [], []
    for public in publics:
        linted = lint(str(public.path), deepspeed=release, severity="info")
        made = migrated(linted)
        refused = said["files"][public.path.stem]
        errors = any(finding.severity is Severity.ERROR for finding in linted.findings)
        if (refused or errors) and not made.applied and not any(map(is_to_do, made.findings)):
            silent.append(public.path.name)
        if made.applied and public.path.stem not in said["migrated"]:
            unknown.append(public.path.name)
        elif made.applied and said["migrated"][public.path.stem] and not any(map(is_to_do, made.findings)):
            silent.append(f"{public.path.name} after its move")

    assert silent == []
    assert len(unknown) < len(publics) // 10, "the moved files changed: run benchmarks/releases.py again"


def test_effective_and_lint_say_the_same(publics: Sequence[Any]) -> None:
    every = [(str(public.path), taken(str(public.path))) for public in publics]
    known = [(path, one) for path, one in every if one is not None]
    wrong = []
    for target in {one.source.target for _, one in known}:
        chosen = [(path, one) for path, one in known if one.source.target == target]
        loaded = load_many([path for path, _ in chosen], target=target)
        wrong += [item for (_, one), effect in zip(chosen, loaded, strict=True) for item in contradictions(one, effect)]

    assert len(known) > 250
    assert wrong == []
