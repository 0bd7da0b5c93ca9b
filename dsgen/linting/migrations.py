"""Which findings of a file speak of its DeepSpeed release: others say otherwise, or this one refuses it."""

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
    """The same file with only the findings that a move to its release is about.

    Those are the findings that some other release does not have, or has with another severity (a key that was removed,
    renamed or deprecated, that the release does not know yet, that it refuses and another ignores, a default that
    changed), those whose rule is about releases, and every error: what the release refuses has not been moved to it,
    whoever else refuses it. A key that nothing ever read is the same in all of them and left alone; so is one that the
    release reads, and of which those that read it too say the same. Of a file that cannot be read the findings stay,
    for nothing of it can be moved.
    """
    if not isinstance(linted.document.config, Mapping):
        return attrs.evolve(linted, hidden=())
    always = _always()
    every = attrs.evolve(linted.settings, severity=Severity.INFO)
    known, elsewhere = surface.load(linted.settings.deepspeed), []
    for release in surface.known_versions():
        other = check(linted.source, attrs.evolve(every, deepspeed=release))
        elsewhere.append((surface.load(release), {_known_by(finding) for finding in other.findings}))

    def differs(finding: Finding) -> bool:
        """Whether a release that is to be compared says otherwise."""
        read = known.key(finding.path) is not None
        return any(
            _known_by(finding) not in others
            for release, others in elsewhere
            if not read or release.key(finding.path) is not None
        )

    kept = tuple(
        finding
        for finding in linted.findings
        if finding.severity is Severity.ERROR or finding.rule in always or differs(finding)
    )
    return attrs.evolve(linted, findings=kept, hidden=())


def is_to_do(finding: Finding) -> bool:
    """Whether a config must change for the release; the others are worth knowing."""
    return finding.severity is not Severity.INFO or finding.rule in _always()


def _known_by(finding: Finding) -> tuple[str, str, Severity]:
    """What makes a finding of one release the same as that of another."""
    return finding.rule, finding.path, finding.severity


def _always() -> frozenset[str]:
    return frozenset(rule.name for rule in rules.RULES if rule.about_versions)
