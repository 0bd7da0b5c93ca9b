"""Whether a fix keeps the run: what is in force before and after it, for the target, but for the finding's own key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from dsgen.deepspeed.keys import lookup, say
from dsgen.documents.editor import apply_to_config
from dsgen.linting.subjects import OPEN, Subject
from dsgen.shapes.findings import Edit, Finding, Fix, Move, Severity

__all__ = ["judged_fix"]

_STAGE = "zero_optimization.stage"
_DEVICES = {f"zero_optimization.offload_{what}.device": what for what in ("optimizer", "param")}
_FIRST = (_STAGE, *_DEVICES, "bf16.enabled", "fp16.enabled", "optimizer.type", "scheduler.type")  # what is named first


def judged_fix(subject: Subject, finding: Finding) -> Fix | None:
    """The fix of a finding; an offer (unsafe) that says both runs where it would change what runs today.

    What DeepSpeed refuses has no run to keep: there the rule's word holds, safe where only one reading is left.
    """
    fix = finding.fix
    if fix is None or not fix.safe or finding.severity is Severity.ERROR:
        return fix
    if all(_within(path, finding.path) for edit in fix.edits for path in _paths(edit)):
        return fix  # nothing but the finding's own key: the rule has looked at what that does
    try:
        config = apply_to_config(subject.config, fix.edits)
    except ValueError:
        return fix
    after = attrs.evolve(subject, config=config)
    changes = sorted(_changes(subject, after, finding.path), key=_rank)
    return attrs.evolve(fix, safe=False, title=f"{fix.title}: {_told(*changes[0])}") if changes else fix


def _paths(edit: Edit) -> tuple[str, ...]:
    return (edit.path, edit.to) if isinstance(edit, Move) else (edit.path,)


def _within(path: str, own: str) -> bool:
    return path == own or path.startswith((f"{own}.", f"{own}["))


def _changes(before: Subject, after: Subject, own: str) -> Iterator[tuple[str, Any, Any]]:
    """Path and both values of every known key that is in force otherwise afterwards."""
    paths = dict.fromkeys(path for subject in (before, after) for path, _ in subject.leaves())
    for path in paths:
        same = _same(lookup(before.config, path), lookup(after.config, path))
        if same or _within(path, own) or path in after.surface.sections:
            continue
        if before.surface.key(path, before.config) is None and after.surface.key(path, after.config) is None:
            continue
        if not after.written(path) and own == f"{path.rpartition('.')[0]}.device":
            continue  # it hangs on that device, of which the rule has judged
        was, becomes = _in_force(before, path), _in_force(after, path)
        if not _same(was, becomes):
            yield path, was, becomes


def _in_force(subject: Subject, path: str) -> Any:
    brought = subject.target.brings & {path, path.partition(".")[0]}
    if any(not subject.written(key) for key in brought):
        return OPEN  # the program says it where the config does not
    return subject.offload(_DEVICES[path]) if path in _DEVICES else subject.value(path)


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _rank(change: tuple[str, Any, Any]) -> int:
    return _FIRST.index(change[0]) if change[0] in _FIRST else len(_FIRST)


def _told(path: str, was: Any, becomes: Any) -> str:
    """Both runs in a few words."""
    if path == _STAGE:
        return f"today ZeRO {_word(was)}, with it ZeRO {_word(becomes)}"
    if path in _DEVICES:
        name = "optimizer" if _DEVICES[path] == "optimizer" else "parameter"
        return f"today {name} offload {was}, with it {becomes}"
    return f"today {path} is {_word(was)}, with it {_word(becomes)}"


def _word(value: Any) -> str:
    if value is OPEN:
        return "what the program fills in"
    return "not set" if value is None else say(value)
