"""A shell script to its simple commands: words with their places, without quotes, comments and redirections.

No shell is run and nothing is expanded: `$A` stays `$A`. Broken quoting ends at the end of the text. A script inside of
the script (`bash -c '...'`, `sbatch <<EOF`) follows the command that runs it.
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
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=")
_SHELLS = ("bash", "sh", "zsh", "dash", "ksh")
_TAKES = re.compile(r"-[a-z]*c")  # -c, -lc, -xec: the next word is a script
_READS_SCRIPTS = (*_SHELLS, "sbatch", "qsub", "ssh")  # what runs the script that a here-document holds
_WRITES = ("cat", "tee")
_SCRIPT_FILE = re.compile(r"\.(?:sh|bash|slurm|sbatch|pbs)\b|\|\s*(?:sbatch|qsub|bash|sh|ssh)\b")
_DEEPEST = 4  # scripts inside of scripts
_NOTHING = "\0"  # stands for a backslash that an outer shell takes away; no shell has it in a word
_ESCAPED = re.compile(r"\\([\\$`])")  # in a here-document
_ESCAPED_IN_QUOTES = re.compile(r"\\([\\$`\"])")


@attrs.frozen
class Word:
    """One word of a command: its text without quotes, and where it stands with them.

    Attributes:
        escaped: A backslash stands before its first `=`, or a quote that ends before it: it is no assignment.
        lead: Quotes before its first letter, of a word that is quoted from there beyond its first `=`.
        items: The words of an array, of `NAME=(...)`; None of any other word.
    """

    text: str
    span: Span
    quoted: bool = False
    escaped: bool = False
    lead: int = 0
    items: tuple[Word, ...] | None = None


@attrs.frozen
class Command:
    """One simple command: its words, and from its first to its last letter.

    Attributes:
        follows: What joins it to the command before it: "&&", "||", "|", ";" or a line's end.
    """

    words: tuple[Word, ...]
    follows: str = ";"

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
    reader = _ShellReader(text, start, len(text) if end is None else end, 0)
    reader.run()
    return tuple(reader.commands), tuple(reader.comments)


class _ShellReader:
    """Where the reading stands, and what was found so far."""

    def __init__(self, text: str, start: int, end: int, depth: int) -> None:
        self.text, self.at, self.end, self.depth = text, start, end, depth
        self.commands: list[Command] = []
        self.comments: list[Span] = []
        self.words: list[Word] = []
        # Here-documents whose text begins after this line: the word that ends each, whether it was quoted, and the
        # command that reads it.
        self.ends: list[tuple[str, bool, int]] = []
        self.joint = ";"  # what stood before the command that is read
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
                self.ends.append((here[2], bool(here[1]), len(self.commands)))
                self.at = here.end()
            elif redirection:
                self.at = redirection.end()
                self.skips = not redirection[0][-1].isdigit() and redirection[0][-1] != "-"
            elif letter in _OPERATORS:
                twice = letter in "&|" and self.text.startswith(letter, self.at + 1)
                self._close()
                self.at += 2 if twice else 1
                self.joint = letter * 2 if twice else letter
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
            words = tuple(attrs.evolve(word, text=word.text.replace(_NOTHING, "")) for word in self.words)
            self.commands.append(Command(words, self.joint))
            if (script := _script_of(words)) is not None and self._in_one_pair(script.span):
                self._inner(script.span.start + 1, script.span.end - 1, self.text[script.span.start] == '"')
        self.words = []
        self.skips = False

    def _in_one_pair(self, span: Span) -> bool:
        """Whether a word is quoted from its first letter to its last, by the same two quotes."""
        quote, inner = self.text[span.start], self.text[span.start + 1 : span.end - 1]
        if quote not in "'\"" or self.text[span.end - 1] != quote:
            return False
        return quote not in (inner if quote == "'" else re.sub(r"\\.", "", inner, flags=re.S))

    def _inner(self, start: int, end: int, in_double_quotes: bool | None) -> None:
        """Read a script inside of this one; in_double_quotes is None of a here-document whose `$` are filled in."""
        if self.depth >= _DEEPEST:
            return
        text = self.text
        if in_double_quotes is not False:
            escaped = _ESCAPED_IN_QUOTES if in_double_quotes else _ESCAPED
            inner = escaped.sub(lambda match: _NOTHING + match[1], text[start:end])
            text = text[:start] + inner + text[end:]
        reader = _ShellReader(text, start, end, self.depth + 1)
        reader.run()
        self.commands += reader.commands
        self.comments += reader.comments

    def _skip_documents(self) -> None:
        for word, quoted, reads in self.ends:
            start = self.at
            stop = start
            while self.at < self.end:
                stop = self.at
                line_end = self._line_end()
                line = self.text[self.at : line_end].strip()
                self.at = min(line_end + 1, self.end)
                if line == word:
                    break
                stop = self.at
            command = self.commands[reads] if reads < len(self.commands) else None
            if command is not None and self._is_script(command, start):
                self._inner(start, stop, False if quoted else None)
        self.ends = []

    def _is_script(self, command: Command, document: int) -> bool:
        """Whether a command runs the here-document behind it, or writes it to a script."""
        names = [word.text.rpartition("/")[2] for word in command.words]
        if any(name in _READS_SCRIPTS for name in names):
            return True
        line = self.text[command.span.start : document]
        return names[0] in _WRITES and _SCRIPT_FILE.search(line) is not None

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
        text, items = "".join(parts), None
        if self.text.startswith("(", self.at) and self.at < self.end and not quoted and _ARRAY.fullmatch(text):
            items = self._array()
            text = self.text[start : self.at]
        if not self.skips:
            self.words.append(Word(text, Span(start, self.at), quoted, escapes, lead, items))
        self.skips = False

    def _array(self) -> tuple[Word, ...]:
        """The words of `(...)`, which may stand on several lines; the place moves behind it."""
        outer, self.words, skips = self.words, [], self.skips
        self.skips = False
        self.at += 1
        while self.at < self.end and self.text[self.at] != ")":
            letter = self.text[self.at]
            if letter == "#":
                self.comments.append(Span(self.at, self._line_end()))
                self.at = self._line_end()
            elif letter == "\\" and self.text.startswith(("\\\n", "\\\r\n"), self.at):
                self.at = self.text.index("\n", self.at) + 1
            elif letter in _SPACE + _OPERATORS + "<>":
                self.at += 1
            else:
                self._word()
        self.at = min(self.at + 1, self.end)
        items = tuple(attrs.evolve(word, text=word.text.replace(_NOTHING, "")) for word in self.words)
        self.words, self.skips = outer, skips
        return items

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


def _script_of(words: tuple[Word, ...]) -> Word | None:
    """The word behind `bash -c` that is a script in one pair of quotes; None where there is none."""
    for place, word in enumerate(words[:-2]):
        if word.text.rpartition("/")[2] in _SHELLS and _TAKES.fullmatch(words[place + 1].text):
            script = words[place + 2]
            return script if script.quoted and script.span.end - script.span.start > len("''") else None
    return None
