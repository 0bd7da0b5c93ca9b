"""The one error a user can cause, and the one builder of its message."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["DsgenError", "mistake", "nearest"]

_SUGGESTIONS = 3  # names offered after a near miss; more is noise in a terminal
_SIMILARITY = 0.5  # difflib ratio below which a name is no help (0.6, its default, misses a100-40 for a10-24g)
_BESIDE_THE_BEST = 0.75  # part of the best match's ratio below which another only distracts
_LONGEST_NAME = 100  # letters compared: difflib takes seconds on a name of 100,000, and no name is that long
_LONG_WORD = re.compile(r"(\S{150})\S{100,}(\S{50})")  # a path or value too long for a message; both ends stay


class DsgenError(Exception):
    """A mistake of the user: what is, what must be, where it was written, what to do."""


def mistake(what: str, *, must: str | None = None, where: object = None, todo: str | None = None) -> DsgenError:
    """Build the error for one mistake.

    Args:
        what: What is: "training.micro_batch is 1.9".
        must: What must be: "it must be a whole number of at least 1".
        where: Where it was written; printed first ("site.yaml:7").
        todo: What to do next; printed on a line of its own.
    """
    head = f"{where}: {what}" if where else what
    message = f"{head}; {must}" if must else head
    return DsgenError(_LONG_WORD.sub(r"\1...\2", f"{message}\n  {todo}" if todo else message))


def nearest(name: str, choices: Iterable[str]) -> tuple[str, ...]:
    """The choices that a name begins or is most like, best first; at most three, none when nothing is alike."""
    wanted = name.casefold()[:_LONGEST_NAME]
    folded = {choice.casefold(): choice for choice in choices}
    begun = sorted((len(choice), choice) for choice in folded if choice.startswith(wanted)) if len(wanted) > 1 else []
    clear = _close(wanted, folded)
    return tuple(folded[match] for match in dict.fromkeys([*(choice for _, choice in begun), *clear]))[:_SUGGESTIONS]


def _close(wanted: str, names: Iterable[str]) -> list[str]:
    """What difflib.get_close_matches gives, less what the best of them puts in the shade.

    Names are compared the most promising first, so that most never are: difflib's quick ratio is never below the ratio.
    """
    import difflib

    matcher = difflib.SequenceMatcher(b=wanted)
    promising = []
    for name in names:
        matcher.set_seq1(name)
        if matcher.real_quick_ratio() >= _SIMILARITY and (most := matcher.quick_ratio()) >= _SIMILARITY:
            promising.append((most, name))
    found: list[tuple[float, str]] = []
    least = _SIMILARITY
    for most, name in sorted(promising, reverse=True):
        if most < least:
            break
        matcher.set_seq1(name)
        ratio = matcher.ratio()
        if ratio >= _SIMILARITY:
            found = sorted([*found, (ratio, name)], reverse=True)[:_SUGGESTIONS]
            least = found[-1][0] if len(found) == _SUGGESTIONS else _SIMILARITY
    best = {name: difflib.SequenceMatcher(None, wanted, name).ratio() for _, name in found}
    return [name for _, name in found if best[name] >= _BESIDE_THE_BEST * best[found[0][1]]]
