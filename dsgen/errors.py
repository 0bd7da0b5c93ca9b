"""The one error a user can cause, and the one builder of its message."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["DsgenError", "mistake", "nearest"]

_SUGGESTIONS = 3  # names offered after a near miss; more is noise in a terminal
_SIMILARITY = 0.5  # difflib ratio below which a name is no help (0.6, its default, misses a100-40 for a10-24g)


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
    return DsgenError(f"{message}\n  {todo}" if todo else message)


def nearest(name: str, choices: Iterable[str]) -> tuple[str, ...]:
    """The choices most like a name, best first; at most three, none when nothing is alike."""
    import difflib

    folded = {choice.casefold(): choice for choice in choices}
    close = difflib.get_close_matches(name.casefold(), folded, n=_SUGGESTIONS, cutoff=_SIMILARITY)
    return tuple(folded[match] for match in close)
