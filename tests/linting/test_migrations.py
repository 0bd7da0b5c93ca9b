"""A move to a release says nothing of a config only where that release takes it, on every rule's own example."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dsgen.deepspeed import surface
from dsgen.documents.hjson import reader
from dsgen.linting import rules
from dsgen.linting.files import check
from dsgen.linting.migrations import is_to_do, migrated
from dsgen.linting.settings import Settings
from dsgen.linting.sources import Source
from dsgen.shapes.findings import Severity


def examples() -> Iterator[Any]:
    """The rules' examples that are configs, each for its program."""
    for rule in rules.RULES:
        if rule.reads == "config":
            document = reader.read(rule.example, f"{rule.name}.hjson")
            if isinstance(document.config, dict):
                target = rule.given.get("target", "deepspeed")
                yield pytest.param(Source(document=document, target=target), id=rule.code)


@pytest.mark.parametrize("source", list(examples()))
def test_what_a_release_refuses_is_never_nothing_to_change(source: Source) -> None:
    for release in surface.known_versions():
        linted = check(source, Settings(deepspeed=release, severity=Severity.INFO))
        if any(finding.severity is Severity.ERROR for finding in linted.findings):
            made = migrated(linted)
            assert made.applied or any(map(is_to_do, made.findings)), release


def test_what_every_release_refuses_is_left_to_do() -> None:
    """No release has a stage 9, so no release differs in it; it is said all the same."""
    config = {"train_batch_size": 8, "zero_optimization": {"stage": 9}}
    document = reader.read(json.dumps(config), "ds.json")

    for release in surface.known_versions():
        linted = check(
            Source(document=document, target="deepspeed"), Settings(deepspeed=release, severity=Severity.INFO)
        )
        assert "zero_optimization.stage" in {finding.path for finding in migrated(linted).findings}
