"""Keys of a config that a release does not read, with what someone may have meant."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from dsgen.deepspeed import surface
from dsgen.deepspeed.keys import check_value
from dsgen.linting.rules.values import outdone
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Edit, Fix, Move, Remove
from dsgen.shapes.near_misses import OFFERED, is_remark, same_words

__all__ = ["Unknown", "is_comment", "lifting", "renaming", "unknown_keys"]

_SURE = 0.75  # difflib ratio of two names from which one is taken for a slip of the other: cpu-offload, overlap_com
_ELSEWHERE = "autotuning."  # it has names of models (hidden_size) that mean that in any file
_OWN_RULES = ("optimizer.params.", "scheduler.params.")  # arguments have rules of their own


@attrs.frozen
class Unknown:
    """A key that the release does not read.

    Attributes:
        path: Where it is written.
        value: Its value.
        strict: Whether its section refuses what it does not know. "auto" it drops before it looks at the name.
        meant: What it may stand for, best first.
        here: Whether the best of them lies in the same section, so that the key is misspelt rather than misplaced.
        sure: Whether the best of them is plainly meant: almost the same name, the right type, and not written yet.
        known_slip: Whether people are known to write this name for that key, or the one section that lacks it is there;
            then the type fits and it is not written.
        later: The release that first reads the key, when a newer one does.
    """

    path: str
    value: Any
    strict: bool
    meant: tuple[str, ...]
    here: bool
    sure: bool
    known_slip: bool
    later: str | None


def unknown_keys(subject: Subject) -> list[Unknown]:
    """The outermost unknown key of every branch of the config, in order."""
    return subject.once("unknown keys", lambda: list(_unknown(subject)))


def _unknown(subject: Subject) -> Iterator[Unknown]:
    known = subject.surface
    skipped: list[str] = []
    for path, value in subject.leaves():
        if path.startswith(_OWN_RULES) or outdone(subject, path) or path.startswith(tuple(skipped)):
            continue
        general = re.sub(r"\[\d+\]", "[]", path)
        if known.key(path, subject.config) is not None or general in known.sections or _still_read(subject, path):
            continue
        skipped += [f"{path}.", f"{path}["]
        parent = path.rpartition(".")[0]
        if not parent or re.sub(r"\[\d+\]", "[]", parent) in known.sections:
            yield _described(subject, path, value, known.sections.get(parent) == "strict" and value != "auto")


def _still_read(subject: Subject, path: str) -> bool:
    """Whether a key is of a section that only a later release has removed: the one that is meant reads it whole."""
    newest = surface.load()
    key = newest.key(path) if newest.version != subject.surface.version else None
    return key is not None and bool(key.removed) and subject.surface.key(key.path) is not None


def renaming(unknown: Unknown) -> Fix | None:
    """The fix that gives an unknown key its right name or place, when it has one."""
    if not (unknown.sure or unknown.known_slip):
        return None
    best = unknown.meant[0]
    verb = f"rename to {best.rpartition('.')[2]}" if unknown.here else f"move to {best}"
    return Fix(verb, (Move(unknown.path, best),), safe=unknown.sure)


def lifting(subject: Subject, unknown: Unknown) -> Fix | None:
    """The offer to move keys out of a section that nothing reads, to where they are read; None where none has a place.

    A key goes to the top where one of its name is there, else to the only place that has the name.
    """
    if not isinstance(unknown.value, Mapping):
        return None
    moved: list[Edit] = []
    for name, value in unknown.value.items():
        places = [path for path in subject.surface.paths if path.rpartition(".")[2] == name]
        best = name if name in places else places[0] if len(places) == 1 else ""
        if best and not best.startswith(unknown.path) and _fits(subject, best, value):
            moved.append(Move(f"{unknown.path}.{name}", best))
    if not moved:
        return None
    names = ", ".join(edit.path.rpartition(".")[2] for edit in moved)
    rest = len(moved) < len(unknown.value)
    title = f"move {names} out of {unknown.path}{' and remove the rest' if rest else ''}"
    return Fix(title, (*moved, *((Remove(unknown.path),) if rest else ())), safe=False)


def is_comment(unknown: Unknown) -> bool:
    """Whether the name says that it is no key: "_read_the_docs", "comment"."""
    return is_remark(unknown.path.rpartition(".")[2])


def _described(subject: Subject, path: str, value: Any, strict: bool) -> Unknown:
    newest = surface.load()
    later = newest.key(path) if newest.version != subject.surface.version else None
    meant = _offered(subject, path)
    best = meant[0] if meant else ""
    here = best.rpartition(".")[0] == path.rpartition(".")[0]
    fits = bool(best) and later is None and _fits(subject, best, value)
    return Unknown(
        path=path,
        value=value,
        strict=strict,
        meant=meant,
        here=here,
        sure=fits and _alike(path, best, here) and (here or (_is_alone(subject, best) and _runs(subject, best))),
        known_slip=fits and best in (subject.surface.mistaken.get(path.rpartition(".")[2]), *_lacking(subject, path)),
        later=(later.since or newest.version) if later is not None else None,
    )


def _offered(subject: Subject, path: str) -> tuple[str, ...]:
    """The keys near enough to an unknown one to be offered, best first: known for it, of its name, or almost."""
    known, last = subject.surface.mistaken, path.rpartition(".")[2]
    if path not in known and last not in known and not _resembling(_plain(path), subject.surface.version, _SURE):
        return _lacking(subject, path)
    meant = (known.get(path), known.get(last))
    near = subject.surface.nearest(path)
    other = (key for key in near if not path.startswith(f"{key}."))
    offered = tuple(key for key in other if key in meant or _resembles(subject, path, key))
    if any(meant):
        return offered or _lacking(subject, path)
    lacked = _lacking(subject, path)
    return (*lacked, *(key for key in offered if key not in lacked))


def _lacking(subject: Subject, path: str) -> tuple[str, ...]:
    """The key that the one section lacks in which a name is a key: `device` beside an offload_optimizer without it.

    Of a name at the top that is no key of a section, the argument of the optimizer or schedule that the config names.
    """
    name = path.rpartition(".")[2]
    classes = [section for section in ("optimizer", "scheduler") if path == name and subject.written(f"{section}.type")]
    taken = [f"{section}.params.{name}" for section in classes]
    if named := [key for key in taken if subject.surface.key(key, subject.config) and not subject.written(key)]:
        return tuple(named) if len(named) == 1 else ()
    if name not in _last_names(subject.surface.version):
        return ()
    sections = [above for above, value in subject.leaves() if isinstance(value, Mapping) and name not in value]
    keys = [f"{above}.{name}" for above in sections]
    lacked = [key for key in keys if key != path and key in subject.surface.paths]
    return tuple(lacked) if len(lacked) == 1 else ()


def _resembles(subject: Subject, path: str, key: str) -> bool:
    if key.startswith(_ELSEWHERE) and not path.startswith(_ELSEWHERE):
        return False
    here = key.rpartition(".")[0] == path.rpartition(".")[0]
    if not here and not _says_where(subject, path, key):
        return False
    names = {_plain(key), *(_plain(old) for old, new in subject.surface.aliases.items() if new == key)}
    if not names.isdisjoint(_resembling(_plain(path), subject.surface.version, OFFERED)):
        return True
    return here and _alike(path, key, here)


def _says_where(subject: Subject, path: str, key: str) -> bool:
    """Whether a name alone says that a key of another section is meant.

    One that several sections have (type, device) says nothing of them, unless the section around it is almost theirs.
    """
    section, other = path.rpartition(".")[0], key.rpartition(".")[0]
    if not section or not other or _is_alone(subject, key):
        return True
    return difflib.SequenceMatcher(None, _plain(section), _plain(other)).ratio() >= OFFERED


@functools.lru_cache(maxsize=4096)
def _resembling(written: str, version: str, least: float) -> frozenset[str]:
    """The names of keys, old ones too, that are the same as a name or almost."""
    matcher = difflib.SequenceMatcher(b=written)
    near = set()
    for name in _names(version):
        matcher.set_seq1(name)
        bounds = (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)  # each at least the next, and quicker
        if name == written or (all(ratio() >= least for ratio in bounds) and same_words(written, name)):
            near.add(name)
    return frozenset(near)


@functools.lru_cache(maxsize=16)
def _last_names(version: str) -> frozenset[str]:
    """The own names of all keys."""
    return frozenset(path.rpartition(".")[2] for path in surface.load(version).paths)


@functools.lru_cache(maxsize=16)
def _names(version: str) -> frozenset[str]:
    known = surface.load(version)
    return frozenset(map(_plain, (*known.paths, *known.aliases, *known.sections)))


def _plain(path: str) -> str:
    return path.rpartition(".")[2].lower().replace("-", "_")


def _alike(path: str, best: str, here: bool) -> bool:
    written, name = (text.rpartition(".")[2].lower().replace("-", "_") for text in (path, best))
    if not here:
        return written == name
    return difflib.SequenceMatcher(None, written, name).ratio() >= _SURE and same_words(written, name)


def _is_alone(subject: Subject, best: str) -> bool:
    """Whether no other key has this name, so that a misplaced one can only belong there."""
    last = best.rpartition(".")[2]
    return sum(path.rpartition(".")[2] == last for path in subject.surface.paths) <= 1


def _runs(subject: Subject, best: str) -> bool:
    """Whether the section of a key does not stay off for being made by the key alone, so that it would do nothing."""
    above = best.rpartition(".")[0]
    switch = subject.surface.key(f"{above}.enabled") if above and not subject.written(above) else None
    return switch is None or switch.default is not False


def _fits(subject: Subject, best: str, value: Any) -> bool:
    key = subject.surface.key(best, subject.config)
    free = not any(subject.written(path) for path in (best, key.path if key else best))
    above = best.rpartition(".")[0]
    roomy = not above or not subject.written(above) or isinstance(subject.raw(above), dict)
    return key is not None and free and roomy and check_value(key, value) is None
