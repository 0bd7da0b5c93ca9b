"""Whether a fix keeps the run: what is in force before and after it, for the target, but for the finding's own key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from dsgen.deepspeed.keys import lookup, say
from dsgen.documents.editor import apply_to_config
from dsgen.linting.rules.dtypes import FP16_ONLY
from dsgen.linting.subjects import OPEN, Subject
from dsgen.shapes.findings import Edit, Erase, Finding, Fix, Move, Remove, Severity

__all__ = ["judged_fix"]

_AUTO = "auto"
# Names that DeepSpeed's own error message gives in the place of another (runtime/engine.py, 0.19.8).
_NAMED = {"optimizer.params.max_grad_norm": "gradient_clipping"}
_NEVER_READ = frozenset(f"{section}.{name}" for section in ("bf16", "bfloat16") for name in FP16_ONLY)
_AS_MANY = 1e-3  # share of a count of elements that rounding may take from it
_STAGE = "zero_optimization.stage"
_DEVICES = {f"zero_optimization.offload_{what}.device": what for what in ("optimizer", "param")}
_FIRST = (_STAGE, *_DEVICES, "bf16.enabled", "fp16.enabled", "optimizer.type", "scheduler.type")  # what is named first


def judged_fix(subject: Subject, finding: Finding) -> Fix | None:
    """The fix of a finding; an offer (unsafe) that says both runs where it would change what runs today.

    What is refused has no run to keep: there a fix is safe that says the same in other words, or takes out what says
    nothing; what a person meant by a name or a value is a guess, and so an offer.
    """
    fix = finding.fix
    if fix is None or not fix.safe:
        return fix
    if finding.severity is Severity.ERROR:
        return fix if all(_says_the_same(subject, edit) for edit in fix.edits) else attrs.evolve(fix, safe=False)
    if all(_within(path, finding.path) for edit in fix.edits for path in _paths(edit)):
        return fix  # nothing but the finding's own key: the rule has looked at what that does
    try:
        config = apply_to_config(subject.config, fix.edits)
    except ValueError:  # it is of another text than the config: a launch script, Accelerate's file
        return fix
    after = attrs.evolve(subject, config=config)
    changes = sorted(_changes(subject, after, finding.path), key=_rank)
    return attrs.evolve(fix, safe=False, title=f"{fix.title}: {_told(*changes[0])}") if changes else fix


def _says_the_same(subject: Subject, edit: Edit) -> bool:
    """Whether an edit of what is refused keeps what is written: another name or form of it, or nothing is lost."""
    if isinstance(edit, Erase):
        return True
    there, value = lookup(subject.config, edit.path)
    if isinstance(edit, Move):
        key = subject.surface.key(edit.path)
        names = (_NAMED.get(edit.path), subject.surface.aliases.get(edit.path), key.replaced_by if key else None)
        return edit.to in names
    if isinstance(edit, Remove):
        key = subject.surface.key(edit.path)
        twin = subject.surface.aliases.get(edit.path) or (key.replaced_by if key else None)
        idle = key is not None and subject.surface.has_effect(edit.path, subject.config) is not None
        idle = idle or edit.path in _NEVER_READ
        return idle or _says_nothing(value) or (twin is not None and _same(value, subject.raw(twin)))
    if there and value is not None:
        return _reads_as(value, edit.value) or _is_rounded(subject, edit.path, value, edit.value)
    return edit.value in (_AUTO, {}) or all(
        _same(default, subject.surface.default(path)) for path, default in _leaves(edit.path, edit.value)
    )


def _says_nothing(value: Any) -> bool:
    """Whether a value asks for nothing: null, off, "auto", or a section that is empty or off."""
    if isinstance(value, Mapping):
        return not value or value.get("enabled", True) is False
    return value is None or value is False or value == _AUTO or _same(value, 0) or _same(value, -1)


def _is_rounded(subject: Subject, path: str, value: Any, other: Any) -> bool:
    """Whether one value is a count of elements with a fraction, and another its whole number, which is as many."""
    key = subject.surface.key(path)
    counts = key is not None and key.elements and isinstance(value, float) and isinstance(other, int)
    return counts and abs(value - other) < _AS_MANY * abs(value)


def _reads_as(value: Any, other: Any) -> bool:
    """Whether one value is another in other words: text of it, in other letters, or alone in a list or a section."""
    if isinstance(other, (list, Mapping)) and not isinstance(value, type(other)):
        items = list(other.values() if isinstance(other, Mapping) else other)
        return len(items) == 1 and _reads_as(value, items[0])
    try:
        return float(value) == float(other)
    except (TypeError, ValueError, OverflowError):
        folded, wanted = (re.sub(r"[_\W]", "", str(one)).lower() for one in (value, other))
        return folded == wanted


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield path, value
        return
    for name, item in value.items():
        yield from _leaves(f"{path}.{name}", item)


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
