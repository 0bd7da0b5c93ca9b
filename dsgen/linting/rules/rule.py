"""The shape of a rule: its names, its documentation, and the check itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["Rule"]


@attrs.frozen(kw_only=True)
class Rule:
    """One thing that can be wrong with a config.

    Attributes:
        code: Short and never used again for anything else: "DSG301".
        name: What a person reads and writes; it names the fault: "stage-missing".
        severity: The usual one; a fault may carry its own.
        what: One sentence: what is wrong.
        why: What happens then: what DeepSpeed does, and how that shows.
        example: A config that has the fault, as text; empty where no text has it (a file that is not UTF-8).
        instead: The same config without it.
        evidence: Where it can be checked: a file of DeepSpeed with its release, an issue, a probe.
        given: What the example needs besides: `target`, `deepspeed` and the fields of Facts.
        since: First release the rule holds for ("0.19.7"); None for all known.
        until: First release it no longer holds for.
        reads: What it looks at: a "config", the "text" of any file, or a "launch" file.
        general: Whether it gives way to any other rule that points at the same key.
        about_versions: Whether it speaks of what changed between releases, so that `dsgen migrate` applies its fixes.
        check: The faults of one subject.
    """

    code: str
    name: str
    severity: Severity
    what: str
    why: str
    example: str
    instead: str
    evidence: tuple[str, ...]
    check: Callable[[Subject], Iterable[Fault]] = attrs.field(repr=False)
    given: Mapping[str, Any] = attrs.field(factory=dict)
    since: str | None = None
    until: str | None = None
    reads: str = "config"
    general: bool = False
    about_versions: bool = False
