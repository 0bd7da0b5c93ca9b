"""A shell script to its simple commands: words with their places, without quotes, comments and redirections.

No shell is run and nothing is expanded: `$A` stays `$A`. Broken quoting ends at the end of the text.
"""

from __future__ import annotations

import re

import attrs

from dsgen.shapes.findings import Span

__all__ = ["Command", "Word", "split"]

_SPACE = " \t\r"
_OPERATORS = ";&|()\n"
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)([A-Za-z_][\w-]*)\1")
_REDIRECTION = re.compile(r"(?:&>>?|[0-9]*(?:<<<|<>|>>|>\||[<>]))(?:&[0-9-]+)?")
_IN_DOUBLE_QUOTES = '$`"\\\n'  # what a backslash escapes between double quotes


@attrs.frozen
class Word:
    """One word of a command: its text without quotes, and where it stands with them.

    Attributes:
        escaped: A backslash stands before its first `=`, or a quote that ends before it: it is no assignment.
        lead: Quotes before its first letter, of a word that is quoted from there beyond its first `=`.
    """

    text: str
    span: Span
    quoted: bool = False
    escaped: bool = False
    lead: int = 0


@attrs.frozen
class Command:
    """One simple command: its words, and from its first to its last letter."""

    words: tuple[Word, ...]

    @property
    def span(self) -> Span:
        """From its first word to its last."""
        return Span(self.words[0].span.start, self.words[-1].span.end)


def split(text: str, start: int = 0, end: int | None = None) -> tuple[tuple[Command, ...], tuple[Span, ...]]:
    """The simple commands of a part of a script, in order, and its comments.

    Args:
        text: The whole file; the places count in it.
        start: Where the part begins.
        end: Where it ends, exclusive; the end of the text without it.
    """
    reader = _ShellReader(text, start, len(text) if end is None else end)
    reader.run()
    return tuple(reader.commands), tuple(reader.comments)


class _ShellReader:
    """Where the reading stands, and what was found so far."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self.text, self.at, self.end = text, start, end
        self.commands: list[Command] = []
        self.comments: list[Span] = []
        self.words: list[Word] = []
        self.ends: list[str] = []  # words that end the here-documents whose text begins after this line
        self.skips = False  # the next word is the file of a redirection

    def run(self) -> None:
        while self.at < self.end:
            letter = self.text[self.at]
            here = _HEREDOC.match(self.text, self.at, self.end)
            redirection = _REDIRECTION.match(self.text, self.at, self.end)
            if letter in _SPACE:
                self.at += 1
            elif self.text.startswith(("\\\n", "\\\r\n"), self.at):
                self.at = self.text.index("\n", self.at) + 1
            elif letter == "#":
                self.comments.append(Span(self.at, self._line_end()))
                self.at = self._line_end()
            elif here and not self.text.startswith("<<<", self.at):
                self.ends.append(here[2])
                self.at = here.end()
            elif redirection:
                self.at = redirection.end()
                self.skips = not redirection[0][-1].isdigit() and redirection[0][-1] != "-"
            elif letter in _OPERATORS:
                self.at += 1
                self._close()
                if letter == "\n":
                    self._skip_documents()
            else:
                self._word()
        self._close()

    def _line_end(self) -> int:
        newline = self.text.find("\n", self.at, self.end)
        return self.end if newline < 0 else newline

    def _close(self) -> None:
        if self.words:
            self.commands.append(Command(tuple(self.words)))
        self.words = []
        self.skips = False

    def _skip_documents(self) -> None:
        for word in self.ends:
            while self.at < self.end:
                stop = self._line_end()
                line = self.text[self.at : stop].strip()
                self.at = min(stop + 1, self.end)
                if line == word:
                    break
        self.ends = []

    def _word(self) -> None:
        start, quoted, escapes, lead = self.at, False, False, 0
        parts: list[str] = []
        while self.at < self.end and self.text[self.at] not in _SPACE + _OPERATORS + "<>":
            letter = self.text[self.at]
            if letter in "'\"":
                quoted, first = True, not parts
                whole = "=" in "".join(parts)
                parts.append(self._quoted(letter))
                lead = 1 if first and "=" in parts[-1] else lead
                escapes = escapes or not (whole or lead)
            elif letter == "\\":
                escapes = escapes or "=" not in "".join(parts)
                escaped = self.text[self.at + 1 : min(self.at + 2, self.end)]
                parts.append("" if escaped == "\n" else escaped)
                self.at = min(self.at + 2, self.end)
            elif self.text.startswith(("$(", "${", "`"), self.at):
                stop = self._substitution()
                parts.append(self.text[self.at : stop])
                self.at = stop
            else:
                parts.append(letter)
                self.at += 1
        if not self.skips:
            self.words.append(Word("".join(parts), Span(start, self.at), quoted, escapes, lead))
        self.skips = False

    def _quoted(self, quote: str) -> str:
        """The text between two quotes, without them; the place moves behind the second."""
        parts = []
        self.at += 1
        while self.at < self.end and self.text[self.at] != quote:
            if quote == '"' and self.text[self.at] == "\\" and self.text[self.at + 1 : self.at + 2]:
                escaped = self.text[self.at + 1]
                parts.append("" if escaped == "\n" else escaped if escaped in _IN_DOUBLE_QUOTES else f"\\{escaped}")
                self.at += 2
            else:
                parts.append(self.text[self.at])
                self.at += 1
        self.at = min(self.at + 1, self.end)
        return "".join(parts)

    def _substitution(self) -> int:
        """Where `$(...)`, `${...}` or a pair of backquotes ends, exclusive."""
        if self.text[self.at] == "`":
            closing = self.text.find("`", self.at + 1, self.end)
            return self.end if closing < 0 else closing + 1
        opens, closes = self.text[self.at + 1], ")" if self.text[self.at + 1] == "(" else "}"
        depth = 0
        for place in range(self.at + 1, self.end):
            depth += (self.text[place] == opens) - (self.text[place] == closes)
            if depth == 0:
                return place + 1
        return self.end
