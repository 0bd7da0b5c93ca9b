"""Every safe fix on every public config: the real DeepSpeed holds the same before and after it, for the target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from safe_fixes import Pair, changed

from dsgen import targets
from dsgen.documents.document import Document
from dsgen.documents.editor import apply_to_config
from dsgen.documents.hjson.reader import read
from dsgen.linting.fixes import fix
from dsgen.linting.linter import lint
from dsgen.shapes.findings import Finding, Severity

NAMES = [target.name for target in targets.TARGETS]


def safe(document: Document, target: str) -> list[Finding]:
    """The findings with a safe fix that stop nothing; DeepSpeed itself says whether the file has a run to keep."""
    findings = (finding for finding in lint(document, target=target) if finding.severity < Severity.ERROR)
    return [finding for finding in findings if finding.fix is not None and finding.fix.safe]


def documents(publics: Sequence[Any]) -> Iterator[Document]:
    for public in publics:
        document = read(public.text, public.path.name)
        if isinstance(document.config, Mapping):
            yield document


def test_the_run_stays_the_same(publics: Sequence[Any]) -> None:
    pairs = [
        Pair(finding, target, document.config, apply_to_config(document.config, finding.fix.edits))
        for document in documents(publics)
        for target in [targets.guess(document.config).name]
        for finding in safe(document, target)
        if finding.fix is not None and isinstance(document.config, Mapping)
    ]

    compared, wrong = changed(pairs)

    assert wrong == []
    assert compared > 250


@pytest.mark.parametrize("target", NAMES)
def test_the_run_stays_the_same_whichever_program_loads_it(publics: Sequence[Any], target: str) -> None:
    """Each finding that is said of some file, once: the same words of the same key are the same fix."""
    pairs = {
        (finding.path, finding.message): Pair(finding, target, document.config, after)
        for document in documents(publics)
        for finding in safe(document, target)
        if finding.fix is not None and isinstance(document.config, Mapping)
        for after in [apply_to_config(document.config, finding.fix.edits)]
    }

    compared, wrong = changed(pairs.values())

    assert wrong == []
    assert compared > 15


def test_all_safe_fixes_together_bring_no_new_fault(publics: Sequence[Any]) -> None:
    """For each program: what is loud afterwards was loud before, and nothing safe is left to do."""
    for document in documents(publics):
        for target in NAMES:
            loud = {finding.rule for finding in lint(document, target=target) if finding.severity > Severity.INFO}
            after = fix(document, unsafe=False, lint=lambda one, target=target: lint(one, target=target), read=read)
            left = lint(read(after.text, document.name), target=target)

            assert {finding.rule for finding in left if finding.severity > Severity.INFO} <= loud, document.name
