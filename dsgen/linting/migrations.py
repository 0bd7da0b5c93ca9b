"""Which findings of a file speak of its DeepSpeed release: another release would not have them."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from dsgen.deepspeed import surface
from dsgen.linting import rules
from dsgen.linting.files import Linted, check
from dsgen.linting.mending import Mended, mended
from dsgen.shapes.findings import Finding, Severity

__all__ = ["about_release", "is_to_do", "migrated"]


def migrated(linted: Linted, *, unsafe: bool = False) -> Mended:
    """A file, linted for the release to move to, with the fixes of what that release changed.

    Args:
        linted: The file with all its findings, notes too.
        unsafe: Whether fixes that change what is trained are applied too.
    """
    return mended(about_release(linted), unsafe=unsafe, narrow=about_release, only=is_to_do)


def about_release(linted: Linted) -> Linted:
    """The same file with only the findings that some other release does not have, or whose rule is about releases.

    A key that was removed, renamed or deprecated, or that the release does not know yet, is found in some releases and
    not in others, and so is a default that changed; a key that nothing ever read is found in all of them. Of a file
    that cannot be read the findings stay, for nothing of it can be moved.
    """
    if not isinstance(linted.document.config, Mapping):
        return attrs.evolve(linted, hidden=())
    always = _always()
    every = attrs.evolve(linted.settings, severity=Severity.INFO)
    elsewhere = []
    for release in surface.known_versions():
        other = check(linted.source, attrs.evolve(every, deepspeed=release))
        elsewhere.append({(finding.rule, finding.path) for finding in other.findings})
    kept = tuple(
        finding
        for finding in linted.findings
        if finding.rule in always or any((finding.rule, finding.path) not in others for others in elsewhere)
    )
    return attrs.evolve(linted, findings=kept, hidden=())


def is_to_do(finding: Finding) -> bool:
    """Whether a config must change for the release; the others are worth knowing."""
    return finding.severity is not Severity.INFO or finding.rule in _always()


def _always() -> frozenset[str]:
    return frozenset(rule.name for rule in rules.RULES if rule.about_versions)
