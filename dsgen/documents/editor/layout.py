"""How a document is laid out: the tree of its entries, their lines, commas and comments, and the style they are in."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from dsgen.documents.document import Document, TextPlace
from dsgen.documents.editor.plain_edits import Steps, dotted_path
from dsgen.shapes.findings import Span

__all__ = ["Patch", "TextLayout", "TextNode", "patched"]

Patch = tuple[int, int, str]
"""The text from one offset to another becomes a new one."""

_SPACE = re.compile(r"\s*")
_BLANKS = re.compile(r"[ \t]*")
_LINE_END = re.compile(r"\r\n|\r|\n")
_DEFAULT_UNIT = "  "  # of indentation, where a text shows none: what most public configs use


@attrs.frozen(eq=False)
class TextNode:
    """One entry of a map or item of a list, with what is in it in the order of the text; the top has no place."""

    step: str | int
    place: TextPlace | None
    value: Any
    around: TextNode | None = None
    children: list[TextNode] = attrs.field(factory=list, repr=False)

    @property
    def key(self) -> Span | None:
        """Where its key stands; None for an item of a list."""
        return self.place.key if self.place else None

    @property
    def start(self) -> int:
        """Where it starts: its key, or its value where it has none."""
        span = self.key or (self.place.value if self.place else None)
        return span.start if span else 0

    @property
    def steps(self) -> Steps:
        """The keys and item numbers that lead to it."""
        return (*self.around.steps, self.step) if self.around else ()

    def before(self) -> TextNode | None:
        """The entry before it in its section."""
        beside = self.around.children if self.around else []
        return next((one for one, next_one in itertools.pairwise(beside) if next_one is self), None)

    def after(self) -> TextNode | None:
        """The entry behind it in its section."""
        beside = self.around.children if self.around else []
        return next((next_one for one, next_one in itertools.pairwise(beside) if one is self), None)


class TextLayout:
    """The layout of one document; nothing in it changes.

    Attributes:
        document: What is laid out.
        text: Its text.
        bare: The same with blanks for the comments, so that commas and braces can be looked for.
        root: The top of the tree of entries.
        eol: How its lines end.
        unit: One step of indentation.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.text = document.text
        self.comments = {span.start: span.end for span in document.comments}
        self.bare = _without(self.text, document.comments)
        self.root = _tree(document)
        match = _LINE_END.search(self.text)
        self.eol = match[0] if match else "\n"
        self.unit = next(self._units(), _DEFAULT_UNIT)

    def node(self, steps: Steps) -> TextNode:
        """What stands at the end of some steps.

        Raises:
            ValueError: The text has no place for it (a value that YAML takes from elsewhere).
        """
        node = self.root
        for step in steps:
            named = [child for child in node.children if child.step == step]
            if not named:
                raise ValueError(f"{dotted_path(steps)} has no place of its own in the text")
            node = named[-1]
        return node

    def nodes(self) -> Iterator[TextNode]:
        """Every entry and item, in the order of the text."""
        waiting = list(reversed(self.root.children))
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))

    def end(self, node: TextNode) -> int:
        """Where an entry ends: behind its value, without the white space and comments that follow."""
        while node.children and not self.is_braced(node):
            node = node.children[-1]
        if node.place is None:
            return len(self.text.rstrip())
        value = node.place.value
        said = self.text[value.start : value.end].rstrip()
        return value.start + len(said) if said or node.key is None else self.colon(node)

    def colon(self, node: TextNode) -> int:
        """Where the colon behind the key of an entry ends."""
        end = node.key.end if node.key else node.start
        behind = _SPACE.match(self.bare, end).end()  # type: ignore[union-attr]  # it matches nothing as well
        return behind + 1 if self.bare.startswith(":", behind) else end

    def dash_above(self, node: TextNode) -> int | None:
        """Where the dash of an item stands whose value starts in a later line; None where there is none such."""
        if node.key is not None or node.around is None or self.is_braced(node.around):
            return None
        ahead = self.bare[: node.start].rstrip()
        above = ahead.endswith("-") and self.line_start(len(ahead)) < self.line_start(node.start)
        return len(ahead) - 1 if above else None

    def is_braced(self, node: TextNode) -> bool:
        """Whether a map or list stands in braces or brackets."""
        if node.place is not None:
            return isinstance(node.value, (Mapping, list)) and self.text[node.place.value.start] in "{["
        first = self.root.children[0].start if self.root.children else len(self.bare)
        ahead = self.bare[:first].rstrip()
        return ahead.endswith("{") if self.root.children else "{" in ahead

    def inside(self, node: TextNode) -> Span:
        """The text between the braces of a map or list; the whole text for a top level without braces."""
        if node.place is not None:
            value = node.place.value
            return Span(value.start + 1, self.end(node) - 1)
        if not self.is_braced(node):
            return Span(0, len(self.text))
        if not node.children:
            start = self.bare.index("{") + 1
            return Span(start, self.bare.index("}", start))
        last = node.children[-1]
        start = self.bare.rindex("{", 0, node.children[0].start) + 1
        return Span(start, self.bare.index("}", self.end(last)))

    def comma(self, node: TextNode, limit: int) -> int | None:
        """Where the comma behind an entry stands, if there is one before a limit."""
        behind = _SPACE.match(self.bare, self.end(node)).end()  # type: ignore[union-attr]
        return behind if behind < limit and self.bare[behind] == "," else None

    def tail(self, at: int, limit: int) -> int:
        """Where the comments end that follow a place in its line; the place itself where none do."""
        while True:
            end = _BLANKS.match(self.text, at).end()  # type: ignore[union-attr]
            if end not in self.comments or end >= limit:
                return at
            start, at = end, self.comments[end]
            if _LINE_END.search(self.text, start, at):
                return at

    def line_start(self, at: int) -> int:
        """Where the line of a place starts."""
        return max(self.text.rfind("\n", 0, at), self.text.rfind("\r", 0, at)) + 1

    def line_end(self, at: int) -> Span:
        """The end of the line of a place: empty at the end of the text."""
        match = _LINE_END.search(self.text, at)
        return Span(*match.span()) if match else Span(len(self.text), len(self.text))

    def lines(self, start: int, end: int) -> Patch:
        """The removal of the lines from that of one place to that of another."""
        first, last = self.line_start(start), self.line_end(end)
        if last.start == last.end:  # the last line of the text has no end, and the one before it then has none either
            first = len(self.text[:first].rstrip())
        return first, last.end, ""

    def indent(self, at: int) -> str:
        """The white space that the line of a place starts with."""
        match = _BLANKS.match(self.text, self.line_start(at))
        return match[0] if match else ""

    def opens_line(self, node: TextNode) -> bool:
        """Whether nothing but white space stands before an entry in its line."""
        return not self.text[self.line_start(node.start) : node.start].strip(" \t")

    def blanks_before(self, at: int) -> int:
        """Where the blanks before a place start, in its line."""
        return len(self.text[:at].rstrip(" \t")) if at else 0

    def blanks_behind(self, at: int) -> int:
        """Where the blanks behind a place end, in its line."""
        return _BLANKS.match(self.text, at).end()  # type: ignore[union-attr]

    def is_blank(self, start: int, end: int) -> bool:
        """Whether there is only white space between two places."""
        return not self.text[start:end].strip()

    def is_unquoted_text(self, node: TextNode) -> bool:
        """Whether a value is a text that only the end of its line ends, as HJSON has them."""
        if self.document.kind != "hjson" or not isinstance(node.value, str) or node.place is None:
            return False
        return self.text[node.place.value.start : node.place.value.start + 1] not in ("'", '"')

    def _units(self) -> Iterator[str]:
        for node in self.nodes():
            if node.around is None or not self.opens_line(node):
                continue
            outer = "" if node.around.place is None else self.indent(node.around.start)
            inner = self.indent(node.start)
            if len(inner) > len(outer) and inner.startswith(outer):
                yield inner[len(outer) :]


def _without(text: str, comments: tuple[Span, ...]) -> str:
    pieces, at = [], 0
    for span in comments:
        pieces += [text[at : span.start], " " * (span.end - span.start)]
        at = span.end
    return "".join([*pieces, text[at:]])


def _tree(document: Document) -> TextNode:
    root = TextNode("", None, document.config)
    around: list[tuple[str, TextNode]] = [("", root)]
    for path, place in sorted(document.places.items(), key=_order):
        if place.key is None and not path:
            continue
        start = (place.key or place.value).start
        while len(around) > 1 and not _holds(*around[-1], path, start):
            around.pop()
        outer, holder = around[-1]
        step, value = _opened(holder.value, path[len(outer) :], top=holder is root)
        node = TextNode(step, place, value, holder)
        holder.children.append(node)
        around.append((path, node))
    return root


def _opened(value: Any, rest: str, top: bool) -> tuple[str | int, Any]:
    """The key or item number that the rest of a path names in a value, and what stands there; None where nothing."""
    if isinstance(value, list):
        number = int(rest[1:-1])
        return number, value[number] if number < len(value) else None
    key = rest if top else rest.removeprefix(".")
    return key, value.get(key) if isinstance(value, Mapping) else None


def _order(item: tuple[str, TextPlace]) -> tuple[int, int, int]:
    path, place = item
    return (place.key or place.value).start, -place.value.end, len(path)


def _holds(outer: str, node: TextNode, path: str, start: int) -> bool:
    if node.place is None or not isinstance(node.value, (Mapping, list)):
        return False
    return path.startswith((f"{outer}.", f"{outer}[")) and node.place.value.start <= start < node.place.value.end


def patched(text: str, patches: list[Patch]) -> str:
    """The text with every patch done; they do not overlap, and those at one place keep their order."""
    pieces, at = [], 0
    for start, end, new in sorted(patches, key=lambda patch: patch[:2]):
        if start < at:
            raise ValueError("two changes of the text overlap")
        pieces += [text[at:start], new]
        at = end
    return "".join([*pieces, text[at:]])
