"""What a cause is made of: the signs that tell it in a log, what it means and what to change, each with its source."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection

import attrs

__all__ = ["CONSEQUENCE", "ROOT", "SLOW", "UNKNOWN", "Cause", "Sign"]

# How far a cause lies from the root, the smallest first: what is named in a log is the first sign of the smallest.
ROOT = 0  # it ends a run by itself
UNKNOWN = 1  # an error that nothing here knows, or that programs often catch
CONSEQUENCE = 2  # what other ranks and launchers say when a rank is gone, hangs or was ended from outside
SLOW = 3  # the run goes on: it is slow, or it learns nothing


@attrs.frozen(slots=False)
class Sign:
    """How a line of a log tells a cause.

    Attributes:
        word: Letters that stand in the line, as they are: a search for them is what makes a log of gigabytes quick.
        also: A pattern that the line must match besides, or what follows it; empty where the word is enough.
        below: A pattern that a frame above it in the rank's traceback must match, with its line of code; empty where
            the message is enough.
    """

    word: str
    also: str = ""
    below: str = ""

    @functools.cached_property
    def pattern(self) -> re.Pattern[str] | None:
        """What `also` says, compiled when it is first needed."""
        return re.compile(self.also) if self.also else None

    def tells(self, line: str, window: str, frames: Collection[str] = ()) -> bool:
        """Whether a line tells it.

        Args:
            line: What stands there.
            window: The line and what follows, for messages that were broken.
            frames: The patterns of `below` that the frames above it match.
        """
        if self.word not in line or (self.below and self.below not in frames):
            return False
        return self.pattern is None or self.pattern.search(window) is not None


@attrs.frozen(kw_only=True)
class Cause:
    """One way in which runs fail or are slow.

    Attributes:
        code: Its name, for programs.
        words: What happened, for a person, to be followed by "on rank 3 in backward".
        level: ROOT, UNKNOWN, CONSEQUENCE or SLOW.
        signs: What tells it; one is enough.
        why: Why it happens, a sentence or two.
        changes: What to change where nothing is known of the job, the most likely first.
        source: Where a person can read it up, or the thread that taught it.
        phase: When it happens where no traceback says; None where that is open.
    """

    code: str
    words: str
    level: int = ROOT
    signs: tuple[Sign, ...]
    why: str
    changes: tuple[str, ...]
    source: str
    phase: str | None = None
