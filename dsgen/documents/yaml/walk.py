"""The one walk over composed YAML: every node once, its plain value, and where it stands.

It stops at what no reader takes and asks the readers, which inherit from it, about the rest.
"""

from __future__ import annotations

import re
from typing import Any

from dsgen.documents.document import TextPlace
from dsgen.documents.hjson.tokens import MAX_DIGITS
from dsgen.documents.yaml.scalars import CORE, MUST, SCALARS
from dsgen.shapes.findings import Span

__all__ = ["MAX_ENTRIES", "FaultError", "YamlWalk"]

MAX_ENTRIES = 10_000  # leaves of one file, aliases expanded: stops a "billion laughs"
_SHOWN = 60  # characters of a value in a message
_PROPERTIES = re.compile(r"(?:[&!]\S*[ \t]+)+")  # an anchor or a tag before a value


class FaultError(Exception):
    """What ends the reading: the rule that says it, its words, where, and whether a tag is to blame."""

    def __init__(self, rule: str, message: str, start: int, end: int | None = None, *, tag: bool = False) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.start = start
        self.end = end
        self.tag = tag


class YamlWalk:
    """One pass over a composed document; counts what it expands, so that aliases cannot multiply without end.

    Attributes:
        text: What the places count in.
        deepest: Maps and lists inside each other that are read.
        places: Dotted path -> where it stands; nothing of what an alias brings in.
        scalars: Where keys and single values stand.
    """

    def __init__(self, text: str, deepest: int) -> None:
        self.text = text
        self.deepest = deepest
        self.places: dict[str, TextPlace] = {}
        self.scalars: list[Span] = []
        self.expanded = 0

    def pair(self, path: str, again: bool, nodes: tuple[Any, Any], value: Any) -> None:
        """Hear of a key of a map: its path, whether it was there before, the nodes of key and value, and the value."""

    def text_of(self, node: Any, path: str) -> str:
        """A text as the reader takes it."""
        return str(node.value)

    def node(self, node: Any, path: str, depth: int, floor: int | None) -> tuple[Any, Span]:
        """A value and where it stands.

        Args:
            node: As composed.
            path: Its dotted path.
            depth: Maps and lists around it, and itself.
            floor: The end of what stands before it; a node from further up came in by an alias. None inside of one.
        """
        self.expanded += 1
        start = node.start_mark.index
        if depth > self.deepest:
            raise FaultError(
                "too-deep", f"it nests deeper than {self.deepest} levels; a config is a few levels deep", start
            )
        if self.expanded > MAX_ENTRIES:
            message = f"it holds more than {MAX_ENTRIES:,} entries with its aliases written out; a config has hundreds"
            raise FaultError("too-large", message, start)
        if floor is not None and start < floor:
            alias = re.compile(r"[ \t\r\n:?,\[{-]*(\*[^\s,\]}]+)").match(self.text, floor)
            span = Span(*alias.span(1)) if alias else Span(floor, floor)
            return self._plain(node, path, depth, None)[0], span
        return self._plain(node, path, depth, floor)

    def _plain(self, node: Any, path: str, depth: int, floor: int | None) -> tuple[Any, Span]:
        start, end = node.start_mark.index, node.end_mark.index
        properties = _PROPERTIES.match(self.text, start, end)
        start = properties.end() if properties else start
        if node.id == "mapping" and node.tag == f"{CORE}map":
            return self._map(node, path, depth, floor, Span(start, end))
        if node.id == "sequence" and node.tag == f"{CORE}seq":
            return self._list(node, path, depth, floor, Span(start, end))
        span = Span(start, max(start, start + len(self.text[start:end].rstrip())))
        if floor is not None:
            self.scalars.append(span)
        return self._scalar(node, path, span), span

    def _scalar(self, node: Any, path: str, span: Span) -> Any:
        kind = node.tag.removeprefix(CORE)
        if node.id != "scalar" or kind not in SCALARS:
            tag = node.tag.replace(CORE, "!!")
            where = path or "the document"
            message = f"{where} carries the tag {tag}; only plain values are read"
            raise FaultError("broken-syntax", message, node.start_mark.index, tag=True)
        try:
            return self.text_of(node, path) if kind in ("str", "timestamp") else SCALARS[kind](str(node.value))
        except (ValueError, KeyError):
            long = len(str(node.value)) > MAX_DIGITS // 2  # 4,300 digits are 3,571 of them in base 16
            rule = "number-too-large" if long else "broken-syntax"
            message = f"{path} is {str(node.value)[:_SHOWN]!r}; it must be {MUST[kind]}"
            raise FaultError(rule, message, span.start, span.end) from None

    def _list(self, node: Any, path: str, depth: int, floor: int | None, span: Span) -> tuple[list[Any], Span]:
        items: list[Any] = []
        last = span.start
        for index, item in enumerate(node.value):
            here = f"{path}[{index}]"
            value, at = self.node(item, here, depth + 1, None if floor is None else last)
            items.append(value)
            last = max(last, at.end)
            if floor is not None:
                self.places[here] = TextPlace(None, at)
        return items, span if node.flow_style else Span(span.start, last)

    def _map(self, node: Any, path: str, depth: int, floor: int | None, span: Span) -> tuple[dict[str, Any], Span]:
        pairs: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        last = span.start
        for key_node, value_node in node.value:
            name, key = self.key(key_node)
            here = f"{path}.{name}" if path else name
            value, at = self.node(value_node, here, depth + 1, None if floor is None else key.end)
            if at.end <= key.start:  # nothing stands behind the colon
                at = Span(key.end + 1, key.end + 1)
            last = max(last, at.end)
            self.pair(here, name in pairs, (key_node, value_node), value)
            if floor is not None:
                self.scalars.append(key)
                self.places[here] = TextPlace(key, at)
            if key_node.tag == f"{CORE}merge" or (name == "<<" and key_node.style is None):
                for source in reversed(value) if isinstance(value, list) else (value,):
                    merged.update(source if isinstance(source, dict) else {})
            else:
                pairs[name] = value
        return {**merged, **pairs}, span if node.flow_style else Span(span.start, last)

    def key(self, node: Any) -> tuple[str, Span]:
        """A key as text, and where it stands."""
        start, end = node.start_mark.index, node.end_mark.index
        if node.id != "scalar":
            raise FaultError("broken-syntax", "a map or list stands where a key must", start)
        properties = _PROPERTIES.match(self.text, start, end)
        return str(node.value), Span(properties.end() if properties else start, end)
