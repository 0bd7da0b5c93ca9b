"""The tokens of JSON and of HJSON as the package hjson 3.1.0 reads them, which is how DeepSpeed reads its config."""

from __future__ import annotations

import math
import re
from typing import Any

import attrs

from dsgen.shapes.findings import Span

__all__ = ["MAX_DIGITS", "Bare", "BrokenTextError", "Tokens", "shown"]

MAX_DIGITS = 4300  # of a whole number: what Python's int() takes from a text (sys.int_info, since 3.10.7)
WHOLE_BELOW = 1e10  # hjson 3.1.0, scantfnns: a whole float below this becomes an int (5e8 is 500000000)

_WHITE = re.compile(r"[ \t\n\r]*")
_COMMENT = re.compile(r"(?:#|//)[^\n\r]*|/\*.*?\*/", re.DOTALL)
_PLAIN = re.compile(r'"([^"\\\x00-\x1f]*)"')
_CHUNKS = {'"': re.compile(r'[^"\\\x00-\x1f]*'), "'": re.compile(r"[^'\\\x00-\x1f]*")}
_ESCAPES = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_NEWLINE = re.compile(r"\r\n|\r|\n")
_INDENT = re.compile(r"[ \t]*")
_NUMBER = re.compile(r"(-?(?:0|[1-9]\d*))(\.\d+)?([eE][-+]?\d+)?[\t ]*")
_STOP = re.compile(r"[,}\]#\r\n]|//|/\*|\Z")  # where an unquoted value may end, if it is a number or a literal
_LINE = re.compile(r"[^\r\n]*")
_NAME = re.compile(r"[^{}\[\],: \t\n\r]*")
_LITERALS: dict[str, Any] = {"true": True, "false": False, "null": None}
_CONTROL = {"\n": "the line ends inside it", "\r": "the line ends inside it", "\t": "a tab must be written \\t"}


def shown(text: str) -> str:
    """A piece of the text for a message: cut when it is long, escaped where a terminal would not print it."""
    cut = text if len(text) <= 60 else f"{text[:57]}..."
    return cut if cut.isprintable() else repr(cut)[1:-1]


class BrokenTextError(Exception):
    """Where the text cannot be read on.

    Attributes:
        message: What is there and what must be.
        span: Where.
        rule: The rule of `rules.text` that says it.
        final: Whether hjson itself breaks here, so that it does not try to read the text as a single value.
    """

    def __init__(self, message: str, start: int, end: int, rule: str = "broken-syntax", final: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.span = Span(start, max(end, start))
        self.rule = rule
        self.final = final


@attrs.frozen
class Bare:
    """A text without quotes: what it says, and where."""

    value: str
    span: Span


@attrs.define
class Tokens:
    """Reads one token at a time from a place in a text and says where it ends.

    Attributes:
        text: Without a byte order mark.
        marked: Whether a byte order mark stood before it.
        comments: What it passed, in order.
        bare: The unquoted texts it passed, in order.
        loose: The first thing that JSON does not know: what it is, and where.
    """

    text: str
    marked: bool = False
    comments: list[Span] = attrs.field(factory=list)
    bare: list[Bare] = attrs.field(factory=list)
    loose: tuple[str, Span] | None = None

    def loosen(self, what: str, start: int, end: int) -> None:
        """Note something that only HJSON takes; the first in the text is kept."""
        if self.loose is None or start < self.loose[1].start:
            self.loose = what, Span(start, end)

    def gap(self, at: int) -> int:
        """Where the white space and the comments from a place on end."""
        text = self.text
        at = _WHITE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing as well
        while text.startswith(("#", "/"), at):
            match = _COMMENT.match(text, at)
            if match is None:
                if text.startswith("/*", at):
                    raise BrokenTextError(
                        "the comment that opens here is never closed; */ is missing", at, at + 2, final=True
                    )
                return at
            if not self.comments or at > self.comments[-1].start:
                self.comments.append(Span(at, match.end()))
            self.loosen("a comment", at, match.end())
            at = _WHITE.match(text, match.end()).end()  # type: ignore[union-attr]
        return at

    def string(self, at: int) -> tuple[str, int]:
        """A text in quotes, which stand at `at`, and where it ends."""
        plain = _PLAIN.match(self.text, at)
        if plain:
            return plain[1], plain.end()
        quote = self.text[at]
        if quote == "'":
            self.loosen("a text in single quotes", at, at + 1)
        pieces: list[str] = []
        end = at + 1
        while True:
            chunk = _CHUNKS[quote].match(self.text, end)
            pieces.append(chunk[0])  # type: ignore[index]  # it matches nothing as well
            end = chunk.end()  # type: ignore[union-attr]
            character = self.text[end : end + 1]
            if character == quote:
                return "".join(pieces), end + 1
            if character != "\\":
                raise self._open_text(at, end, character)
            piece, end = self._escape(at, end)
            pieces.append(piece)

    def _open_text(self, at: int, end: int, character: str) -> BrokenTextError:
        if character in ("", "\n", "\r"):
            last = "the file" if not character else "the line"
            message = f"the text that opens here has no closing {self.text[at]} before {last} ends"
            return BrokenTextError(message, at, end)
        said = _CONTROL.get(character, f"the control character U+{ord(character):04X} must be escaped")
        return BrokenTextError(f"a text in quotes holds a control character: {said}", end, end + 1)

    def _escape(self, at: int, slash: int) -> tuple[str, int]:
        name = self.text[slash + 1 : slash + 2]
        if name in _ESCAPES:
            if name == "'":
                self.loosen("the escape \\'", slash, slash + 2)
            return _ESCAPES[name], slash + 2
        if name in ("", "\n", "\r"):
            raise self._open_text(at, slash + 1, name)
        if name != "u":
            must = 'one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\u must stand there (a Windows path needs \\\\ or /)'
            raise BrokenTextError(f"\\{shown(name)} is no escape; {must}", slash, slash + 2)
        first = self._hex(slash)
        if first is None:
            raise BrokenTextError("\\u must be followed by four hexadecimal digits", slash, slash + 6)
        end = slash + 6
        if first & 0xFC00 == 0xD800 and self.text.startswith("\\u", end):
            second = self._hex(end)
            if second is not None and second & 0xFC00 == 0xDC00:
                return chr(0x10000 + ((first - 0xD800) << 10 | (second - 0xDC00))), end + 6
        return chr(first), end

    def _hex(self, slash: int) -> int | None:
        """Four digits after a \\u as hjson takes them: with int(), which passes over spaces, signs and underscores."""
        digits = self.text[slash + 2 : slash + 6]
        try:
            number = int(digits, 16) if len(digits) == 4 and digits[1] not in "xX" else -1
        except ValueError:
            return None
        if not digits.isalnum():
            self.loosen(f"the escape \\u{shown(digits)}", slash, slash + 6)
        return number if number >= 0 else None

    def multiline(self, at: int) -> tuple[str, int]:
        """A text in three single quotes, its lines without the indentation of the first, and where it ends."""
        text = self.text
        self.loosen("a text in three quotes", at, at + 3)
        before = max(text.rfind("\n", 0, at), text.rfind("\r", 0, at))
        indent = at - before - 1
        if before < 0:  # hjson counts the indentation backwards and goes on at the end of the file
            last = max(text.rfind("\n"), text.rfind("\r"))
            if last < 0:
                raise BrokenTextError("hjson breaks on ''' in a file of a single line", at, at + 3, final=True)
            indent = at + len(text) - last - 1 + self.marked
        start = _INDENT.match(text, at + 3).end()  # type: ignore[union-attr]
        close = text.find("'''", start)
        if close < 0:
            raise BrokenTextError(
                "the text that opens here is never closed; ''' is missing", at, at + 3, final=start == len(text)
            )
        lines = _NEWLINE.split(text[start:close])
        if lines[0] == "" and len(lines) > 1:
            lines = lines[1:]
            lines[0] = _unindented(lines[0], indent)
        said = "\n".join([lines[0], *(_unindented(line, indent) for line in lines[1:])])
        return said.removesuffix("\n"), close + 3

    def unquoted(self, at: int) -> tuple[Any, int, int]:
        """A number, true, false, null or a text without quotes; its value, its end, and where to read on."""
        text = self.text
        stop = _STOP.search(text, at).start()  # type: ignore[union-attr]  # it finds the end of the text at last
        first = text[at]
        if first in "tfn":
            word = text[at:stop].strip()
            if word in _LITERALS:
                return _LITERALS[word], at + len(word), stop
        elif first == "-" or "0" <= first <= "9":
            number = _NUMBER.match(text, at)
            if number and number.end() == stop:
                end = at + len(number[0].rstrip("\t "))
                return self._number(number, at, end), end, stop
        line = _LINE.match(text, at)[0]  # type: ignore[index]
        value = line.strip()
        start = at + len(line) - len(line.lstrip()) if value else at
        self.bare.append(Bare(value, Span(start, start + len(value))))
        self.loosen(f"the text {shown(value.rstrip(','))} without quotes", start, start + len(value))
        return value, start + len(value), at + len(line)

    def _number(self, match: re.Match[str], at: int, end: int) -> int | float:
        whole, fraction, exponent = match.groups()
        if not fraction and not exponent:
            if len(whole.lstrip("-")) > MAX_DIGITS:
                digits = f"a whole number of {len(whole.lstrip('-')):,} digits; Python reads at most {MAX_DIGITS:,}"
                raise BrokenTextError(digits, at, end, "number-too-large", final=True)
            if not whole.isascii():
                self.loosen("digits other than 0 to 9", at, end)
            return int(whole)
        number = float(match[0])
        if math.isinf(number):
            message = "this number is larger than a float can be (1.8e308), and hjson breaks on it"
            raise BrokenTextError(message, at, end, "number-too-large", final=True)
        return int(number) if number.is_integer() and abs(number) < WHOLE_BELOW else number

    def name(self, at: int) -> tuple[str, Span, int]:
        """The name of an entry, where it stands, and where to read on; never called at the end of the text."""
        text = self.text
        first = text[at]
        if first in "\"'":
            value, end = self.string(at)
            return value, Span(at, end), end
        end = _NAME.match(text, at).end()  # type: ignore[union-attr]
        after = _WHITE.match(text, end).end()  # type: ignore[union-attr]
        character = text[after : after + 1]
        if end == at:
            if text.startswith("{{", at - 1):
                raise BrokenTextError(
                    "{{ opens a placeholder that nothing fills in; a value must stand here", at - 1, at + 1
                )
            raise BrokenTextError(_NO_NAME[character], after, after + 1)
        if character != ":":
            raise BrokenTextError(f"{shown(text[at:end])} is no key: a colon must follow it", at, end)
        value = text[at:end] if after == end else text[at:end].rstrip()
        self.loosen(f"the key {shown(value)} without quotes", at, end)
        return value, Span(at, end), after


_NO_NAME = {
    ":": "a colon stands where a key must",
    ",": "a second comma, or one before the first entry; a key must stand here",
    "{": "{ stands where a key must: a section needs a name before it",
    "[": "[ stands where a key must: a list needs a name before it",
}


def _unindented(line: str, indent: int) -> str:
    kept = 0
    while kept < indent and line[kept : kept + 1] in (" ", "\t"):
        kept += 1
    return line[kept:]
