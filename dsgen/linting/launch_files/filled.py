"""The words of commands with what a script says of its variables and arrays put in their place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import attrs

from dsgen.linting.launch_files.words import Command, Word, split
from dsgen.shapes.findings import Span

__all__ = ["FilledScript"]

_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
# "${ARGS[@]}", and the form that `set -u` of old shells needs: ${ARGS[@]+"${ARGS[@]}"}.
_ARRAY = re.compile(r"\$\{([A-Za-z_]\w*)\[[@*]\](?:\+\"?\$\{\1\[[@*]\]\}\"?)?\}")
_MADE = re.compile(r"([A-Za-z_]\w*)(\+?)=\(")
_OPENS = frozenset(("if", "for", "while", "until", "case", "select"))
_CLOSES = frozenset(("fi", "done", "esac"))
_BEFORE = frozenset(("then", "do", "else", "elif", "!", "{", "}", *_OPENS, *_CLOSES))


@attrs.define
class _Array:
    """What is known of an array: its words, and the options among them that a branch may say otherwise."""

    words: list[Word]
    doubtful: set[str] = attrs.field(factory=set)


class FilledScript:
    """Commands in the order of a script: each with what those before it say of arrays.

    An array that a branch alone makes is not known; of one that a branch adds to, the options that it adds are not.
    """

    def __init__(self, text: str, known: Mapping[str, tuple[str, Span]]) -> None:
        self.text, self.known = text, known
        self.arrays: dict[str, _Array] = {}
        self.depth = 0  # of branches and loops

    def words_of(self, command: Command) -> list[Word]:
        """The words of the next command, filled in."""
        self._enter(command)
        branch = self.depth > 0 or command.follows in ("&&", "||")
        for word in command.words:
            if word.items is not None and (made := _MADE.match(word.text)):
                self._make(made[1], bool(made[2]), self._all(word.items), branch)
        return list(self._all(command.words))

    def _enter(self, command: Command) -> None:
        """Count the branches that a command begins or ends."""
        for word in command.words:
            if word.quoted or word.text not in _BEFORE:
                return
            self.depth = max(0, self.depth + (word.text in _OPENS) - (word.text in _CLOSES))

    def _make(self, name: str, adds: bool, words: Iterable[Word], branch: bool) -> None:
        if not adds and branch:
            self.arrays.pop(name, None)
        elif not adds:
            self.arrays[name] = _Array(list(words))
        elif name in self.arrays and branch:
            self.arrays[name].doubtful |= {_option(word) for word in words if word.text.startswith("-")}
        elif name in self.arrays:
            self.arrays[name].words += words

    def _all(self, words: Iterable[Word]) -> Iterator[Word]:
        for word in words:
            yield from self._one(word)

    def _one(self, word: Word) -> Iterator[Word]:
        """A word with what is known in its place; an array, or a variable without quotes, may become several."""
        array = _ARRAY.fullmatch(word.text)
        alone = _VARIABLE.fullmatch(word.text)
        if array and (of_array := self.arrays.get(array[1])) is not None:
            yield from _certain(of_array)
        elif alone and not word.quoted and (said := self.known.get(alone[1] or alone[2])):
            inner = said[1]
            if self.text[inner.start : inner.start + 1] in ("'", '"'):
                inner = Span(inner.start + 1, inner.end - 1)
            for command in split(self.text, inner.start, inner.end)[0]:
                yield from command.words
        elif "$" in word.text:
            yield attrs.evolve(word, text=_VARIABLE.sub(self._value, word.text))
        else:
            yield word

    def _value(self, match: re.Match[str]) -> str:
        said = self.known.get(match[1] or match[2])
        return said[0] if said else match[0]


def _certain(array: _Array) -> Iterator[Word]:
    """The words of an array without the options, and their values, that a branch may say otherwise."""
    leaves = False
    for word in array.words:
        if word.text.startswith("-"):
            leaves = _option(word) in array.doubtful
        if not leaves:
            yield word


def _option(word: Word) -> str:
    return word.text.partition("=")[0].lstrip("-").replace("-", "_")
