"""The one error a user can cause, as data, and the builders of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, get_args

__all__ = ["CODES", "MOST_MISTAKES", "Code", "DsgenError", "joined", "mistake", "nearest"]

Code = Literal[
    "bad-value",  # a value is not what it must be
    "unknown-name",  # no such profile, key, rule, release or argument
    "missing",  # what is needed was not said
    "contradiction",  # two things that were said exclude each other
    "does-not-fit",  # no strategy has room, or none can run
    "unreadable",  # a file is not there, cannot be read, or is not written in its language
    "unwritable",  # a file cannot be written
    "missing-package",  # an interpreter lacks what a command runs
    "refused",  # DeepSpeed, transformers or peft do not take it
    "lost",  # a process that was started ended without an answer, or took too long
]
CODES: tuple[Code, ...] = get_args(Code)
MOST_MISTAKES = 10  # shown at once; a file with more was not meant as a profile

_SUGGESTIONS = 3  # names offered after a near miss; more is noise in a terminal
_SIMILARITY = 0.5  # difflib ratio below which a name is no help (0.6, its default, misses a100-40 for a10-24g)
_BESIDE_THE_BEST = 0.75  # part of the best match's ratio below which another only distracts
_LONGEST_NAME = 100  # letters compared: difflib takes seconds on a name of 100,000, and no name is that long
_LONG_WORD = re.compile(r"(\S{150})\S{100,}(\S{50})")  # a path or value too long for a message
_ENDS = r"\1...\2"  # both ends of it stay


class DsgenError(Exception):
    """A mistake of the user, as data: what is, what must be, where it was written, what to do.

    `str()` is the text for a person. Of several mistakes at once the fields are those of the first; `mistakes` has all.

    Attributes:
        what: What is: "training.micro_batch is 1.9".
        must: What must be: "it must be a whole number of at least 1"; None where that goes without saying.
        where: Where it was written: "site.yaml:7", "--set"; None where nobody wrote it.
        todo: What to do next; None where that is plain. What takes long to find is found when somebody asks.
        code: The kind of mistake, one of CODES.
    """

    def __init__(
        self,
        what: str,
        *,
        must: str | None = None,
        where: str | None = None,
        todo: str | Callable[[], str] | None = None,
        code: Code = "bad-value",
        mistakes: Sequence[DsgenError] = (),
    ) -> None:
        super().__init__(what)
        self.what, self.must, self.where, self.code = what, must, where, code
        self._todo, self._several = todo, tuple(mistakes)

    @property
    def todo(self) -> str | None:
        """What to do next."""
        if callable(self._todo):
            self._todo = self._todo()
        return self._todo

    @property
    def mistakes(self) -> tuple[DsgenError, ...]:
        """Every mistake by itself: of one mistake the error, of several each, in the order of the files' lines."""
        return self._several or (self,)

    @property
    def sentence(self) -> str:
        """The first mistake on one line, without what to do."""
        head = f"{self.where}: {self.what}" if self.where else self.what
        return _LONG_WORD.sub(_ENDS, f"{head}; {self.must}" if self.must else head)

    def __str__(self) -> str:
        if self._several:
            more = len(self._several) - MOST_MISTAKES
            shown = "\nerror: ".join(str(error) for error in self._several[:MOST_MISTAKES])
            return f"{shown}\n  and {more} more" if more > 0 else shown
        return f"{self.sentence}\n  {_LONG_WORD.sub(_ENDS, self.todo)}" if self.todo else self.sentence

    def inside(self, where: object) -> DsgenError:
        """The same mistake met by way of another place, which is named first: "pyproject.toml: tool.dsgen.lint.hw"."""
        return DsgenError(
            self.what,
            must=self.must,
            where=f"{where}: {self.where}" if self.where else str(where),
            todo=self._todo,
            code=self.code,
            mistakes=[error.inside(where) for error in self._several],
        )


def mistake(
    what: str,
    *,
    must: str | None = None,
    where: object = None,
    todo: str | Callable[[], str] | None = None,
    code: Code = "bad-value",
) -> DsgenError:
    """Build the error for one mistake.

    Args:
        what: What is: "training.micro_batch is 1.9".
        must: What must be: "it must be a whole number of at least 1".
        where: Where it was written; printed first ("site.yaml:7").
        todo: What to do next, or what finds it; printed on a line of its own.
        code: The kind of mistake, one of CODES.
    """
    return DsgenError(what, must=must, where=str(where) if where else None, todo=todo, code=code)


def joined(errors: Sequence[DsgenError]) -> DsgenError:
    """Several mistakes as one error; one alone stays itself."""
    every = tuple(single for error in errors for single in error.mistakes)
    first = every[0]
    if len(every) == 1:
        return first
    return DsgenError(first.what, must=first.must, where=first.where, todo=first.todo, code=first.code, mistakes=every)


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
    ranked: list[tuple[float, str]] = []
    least = _SIMILARITY
    for most, name in sorted(promising, reverse=True):
        if most < least:
            break
        matcher.set_seq1(name)
        ratio = matcher.ratio()
        if ratio >= _SIMILARITY:
            ranked = sorted([*ranked, (ratio, name)], reverse=True)[:_SUGGESTIONS]
            least = ranked[-1][0] if len(ranked) == _SUGGESTIONS else _SIMILARITY
    best = {name: difflib.SequenceMatcher(None, wanted, name).ratio() for _, name in ranked}
    return [name for _, name in ranked if best[name] >= _BESIDE_THE_BEST * best[ranked[0][1]]]
