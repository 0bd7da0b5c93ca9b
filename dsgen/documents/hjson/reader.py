"""JSON and HJSON, read as DeepSpeed reads its config, with the place of every key and value and of every fault."""

from __future__ import annotations

import json
import re
from typing import Any

from dsgen.documents.document import Document, TextPlace
from dsgen.documents.hjson import causes
from dsgen.documents.hjson.tokens import BrokenTextError, Tokens, shown
from dsgen.shapes.findings import Fault, Severity, Span

__all__ = ["MAX_BYTES", "MAX_DEPTH", "read", "unreadable"]

MAX_BYTES = 1_000_000  # 1 MB; the largest of 265 public configs has 2.7 kB, so a larger file is data, not a config
MAX_DEPTH = 100  # maps and lists inside each other; DeepSpeed's deepest key has 7, and hjson 3.1.0 breaks at about 490
_TOO_DEEP = f"it nests deeper than {MAX_DEPTH} levels; a config is a few levels deep"
_MOST_TWICE = 100  # duplicate keys that are told; more of them say nothing new

_BOM = "\ufeff"
_MISREAD_BOM = "ï»¿"  # its bytes in Latin-1; hjson skips these as well
_ENTRY = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*')
_NO_VALUE = {
    ",": "a comma stands where a value must",
    ":": "a second colon stands where a value must",
}


def read(text: str, name: str) -> Document:
    """A document from JSON or HJSON text; nothing is raised.

    Args:
        text: The file as text, a byte order mark at its start included.
        name: What to call the file in findings.

    Returns:
        `config` is what hjson 3.1.0 makes of the text (of two equal keys the last), or None where it makes nothing of
        it; then the document has a fault that DeepSpeed stops at.
    """
    marked = text.startswith(_BOM)
    reader = _Reader(Tokens(text[1:] if marked else text, marked))
    if marked:
        reader.say("byte-order-mark", "", "the file starts with a byte order mark (U+FEFF)", Span(0, 1))
    config, kind = None, "hjson"
    try:
        if _is_utf16(reader.text):
            message = "every second character is a null character: the file is UTF-16; it must be UTF-8"
            reader.say("not-utf8", "", message, Span(0, 1))
        else:
            config = reader.document()
            kind = reader.kind(config)
    except BrokenTextError as broken:
        reader.say(broken.rule, "", broken.message, broken.span, Severity.ERROR)
    return Document(
        name=name,
        text=reader.text,
        kind=kind,
        config=config,
        places=reader.places,
        comments=tuple(reader.tokens.comments),
        faults=tuple(reader.faults),
    )


def _is_utf16(text: str) -> bool:
    """Whether a text that was read as UTF-8 is ASCII in UTF-16 without a byte order mark."""
    halves = [set(text[start:20:2]) for start in (0, 1)]
    return all(halves) and [half == {"\0"} for half in halves].count(True) == 1


def unreadable(name: str, rule: str, message: str) -> Document:
    """A document for a file without text that could be read; its only fault is `message`, by the rule of that name."""
    return Document(name=name, text="", kind="json", config=None, faults=((rule, Fault("", message)),))


class _Reader:
    """One pass over a text; remembers what stands open, so that it can say what is not closed."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.text = tokens.text
        self.places: dict[str, TextPlace] = {}
        self.faults: list[tuple[str, Fault]] = []
        self.twice = 0
        self.open: list[tuple[str, int]] = []  # path and offset
        self.closed: list[tuple[str, int, int]] = []  # path, offsets of both braces

    def say(self, rule: str, path: str, message: str, span: Span, severity: Severity | None = None) -> None:
        """Note a fault of the text."""
        self.faults.append((rule, Fault(path, message, span=span, severity=severity)))

    def document(self) -> Any:
        """What the text holds; None where it holds nothing.

        Raises:
            BrokenTextError: It cannot be read.
        """
        skipped = len(_MISREAD_BOM) if self.text.startswith(_MISREAD_BOM) and not self.tokens.marked else 0
        if skipped:
            self.tokens.loosen("a byte order mark that was read as Latin-1", 0, skipped)
        at = self.tokens.gap(skipped)
        first = self.text[at : at + 1]
        if not first:
            what = "only comments" if self.tokens.comments else "nothing"
            self.say("empty-file", "", f"the file holds {what}; it must hold a map with a batch size", Span(0, 1))
            return None
        if first in "{[":
            value, end = self._value(at, "")
        else:
            value, end = self._without_braces(at)
        after = self.tokens.gap(end)
        if after < len(self.text):
            raise causes.more(self.text, at, end, after)
        if not isinstance(value, dict):
            kind = "a list" if isinstance(value, list) else f"the single value {shown(self.text[at:end])}"
            self.say("not-a-map", "", f"the top level is {kind}; it must be a map of keys", Span(at, at + 1))
        return value

    def kind(self, config: Any) -> str:
        """ "json" where Python's json reads the same from the text, else "hjson"; notes why it cannot."""
        try:
            plain = json.loads(self.text)
        except (ValueError, RecursionError) as error:
            place = getattr(error, "pos", 0)
            what, span = self.tokens.loose or ("what HJSON alone takes", Span(place, place + 1))
            if isinstance(config, dict):
                self.say("not-strict-json", "", what, span)
            return "hjson"
        return "json" if plain == config else "hjson"

    def _without_braces(self, at: int) -> tuple[Any, int]:
        """A map without the braces around it, which HJSON takes; else a single value."""
        bare = len(self.tokens.bare)
        try:
            self.tokens.loosen("the missing braces around the map", at, at + 1)
            return self._map(at, "", closed=False)
        except BrokenTextError as broken:
            if broken.final:
                raise
            self.open.clear()
            del self.tokens.bare[bare:]
            try:
                value, _, end = self._scalar(at)
                if self.tokens.gap(end) == len(self.text):
                    self.places.clear()
                    self.faults.clear()
                    return value, end
            except BrokenTextError:
                pass
            if broken.span.start == at:  # not even the first key could be read: this is no config at all
                line = re.split(r"[\r\n]", self.text[at : at + 60], maxsplit=1)[0]
                raise BrokenTextError(
                    f"the file begins with {shown(line)}; a config begins with {{", at, at + 1
                ) from None
            raise broken from None

    def _value(self, at: int, path: str) -> tuple[Any, int]:
        """A map or list in braces, and where it ends."""
        if len(self.open) >= MAX_DEPTH:
            raise BrokenTextError(_TOO_DEEP, at, at + 1, "too-deep", final=True)
        self.open.append((path, at))
        value, end = self._map(at + 1, path) if self.text[at] == "{" else self._list(at + 1, path)
        self.open.pop()
        self.closed.append((path, at, end - 1))
        return value, end

    def _scalar(self, at: int) -> tuple[Any, int, int]:
        """A value that is no map or list: itself, where it ends, and where to read on."""
        text = self.text
        character = text[at : at + 1]
        if character == '"' or character == "'":
            value, end = self.tokens.multiline(at) if text.startswith("'''", at) else self.tokens.string(at)
            return value, end, end
        if not character:
            raise self._cut()
        if character in "}]":
            raise causes.wrong_close(text, at, self.open, "a value")
        if character in _NO_VALUE:
            raise BrokenTextError(_NO_VALUE[character], at, at + 1)
        return self.tokens.unquoted(at)

    def _map(self, at: int, path: str, closed: bool = True) -> tuple[dict[str, Any], int]:
        text, gap = self.text, self.tokens.gap
        prefix = f"{path}." if path else ""
        pairs: dict[str, Any] = {}
        at = gap(at)
        if closed and text.startswith("}", at):
            return pairs, at + 1
        while True:
            if at >= len(text):
                raise self._cut()
            entry = _ENTRY.match(text, at)
            if entry:
                name, key, at = entry[1], Span(at, entry.end(1) + 1), gap(entry.end())
            else:
                name, key, at = self._key(at)
            here = prefix + name
            if name in pairs:
                self._twice(here, key, pairs[name])
            value, span, at = self._entry(at, here)
            self.places[here] = TextPlace(key, span)
            pairs[name] = value
            at, more = self._next(at, "}" if closed else "")
            if not more:
                return pairs, at

    def _key(self, at: int) -> tuple[str, Span, int]:
        text = self.text
        if text[at] in "}]":
            raise causes.wrong_close(text, at, self.open, "a key")
        name, key, end = self.tokens.name(at)
        end = self.tokens.gap(end)
        if not text.startswith(":", end):
            if end >= len(text):
                raise self._cut()
            raise BrokenTextError(f"the key {shown(name)} must be followed by a colon and a value", key.start, key.end)
        return name, key, self.tokens.gap(end + 1)

    def _entry(self, at: int, path: str) -> tuple[Any, Span, int]:
        """A value under its path, where it stands, and where to read on."""
        if self.text.startswith(("{", "["), at):
            value, end = self._value(at, path)
            return value, Span(at, end), end
        bare = len(self.tokens.bare)
        value, end, after = self._scalar(at)
        return value, self.tokens.bare[-1].span if len(self.tokens.bare) > bare else Span(at, end), after

    def _cut(self) -> BrokenTextError:
        return causes.not_closed(self.text, self.open, self.closed, self.tokens.bare)

    def _list(self, at: int, path: str) -> tuple[list[Any], int]:
        items: list[Any] = []
        at = self.tokens.gap(at)
        if self.text.startswith("]", at):
            return items, at + 1
        while True:
            here = f"{path}[{len(items)}]"
            value, span, at = self._entry(at, here)
            self.places[here] = TextPlace(None, span)
            items.append(value)
            at, more = self._next(at, "]")
            if not more:
                return items, at

    def _next(self, at: int, close: str) -> tuple[int, bool]:
        """Where the next entry begins, behind a comma if there is one; else where the map or list ends, and False."""
        text, start = self.text, at
        at = self.tokens.gap(at)
        comma = at if text.startswith(",", at) else None
        if comma is not None:
            at = self.tokens.gap(at + 1)
        if text[at : at + 1] == close:
            if comma is not None:
                self.tokens.loosen("a comma behind the last entry", comma, comma + 1)
            return at + len(close), False
        if comma is None and at < len(text):
            self.tokens.loosen("the missing comma between two entries", start - 1, start)
        return at, True

    def _twice(self, path: str, again: Span, before: Any) -> None:
        """Note a second key of the same name, and forget the places inside its first value, `before`."""
        if isinstance(before, (dict, list)) and before:
            inside = (f"{path}.", f"{path}[")
            for known in [known for known in self.places if known.startswith(inside)]:
                del self.places[known]
        self.twice += 1
        if self.twice <= _MOST_TWICE:
            lines = f"first in line {self._line(self.places[path].key)}, again in line {self._line(again)}"
            self.say("duplicate-key", path, f"{shown(path) or 'the empty key'} is given twice, {lines}", again)

    def _line(self, span: Span | None) -> int:
        return self.text.count("\n", 0, span.start if span else 0) + 1
