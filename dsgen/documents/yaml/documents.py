"""YAML, read with the place of every key and value and of every fault."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from typing import Any

import attrs

from dsgen.documents.document import Document, Place
from dsgen.documents.hjson.reader import MAX_DEPTH
from dsgen.documents.hjson.tokens import MAX_DIGITS
from dsgen.documents.yaml.reader import MAX_ENTRIES, NotYamlError, compose
from dsgen.documents.yaml.scalars import CORE, MUST, SCALARS
from dsgen.shapes.findings import Fault, Span

__all__ = ["read"]

MAX_CHARACTERS = 200_000  # ruamel.yaml reads some 80,000 a second; a config has a few thousand
_COMMENT = re.compile(r"(?:^|(?<=[ \t\r\n]))#[^\r\n]*")
_PROPERTIES = re.compile(r"(?:[&!]\S*[ \t]+)+")  # an anchor or a tag before a value


class _FaultError(Exception):
    """What ends the reading: the rule that says it, its words, and where."""

    def __init__(self, rule: str, message: str, start: int, end: int | None = None) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.start = start
        self.end = end


def read(text: str, name: str) -> Document:
    """A document from YAML text; nothing is raised.

    Args:
        text: The file as text.
        name: What to call the file in findings.

    Returns:
        `config` holds the plain values of YAML 1.2's core schema, aliases and merged maps (`<<`) written out; a date
        is a text, and so is every key. It is None where the text cannot be read; then the document has a fault.
        What an alias brings in has no places of its own.
    """
    text = text.removeprefix("\ufeff")
    walk = _Walk(text)
    try:
        config = walk.document(name)
    except _FaultError as error:
        start = min(error.start, max(len(text) - 1, 0))
        span = Span(start, start + 1 if error.end is None else error.end)
        walk.say(error.rule, "", error.message, span)
        config = None
    return Document(
        name=name,
        text=text,
        kind="yaml",
        config=config,
        places=walk.places,
        comments=tuple(walk.comments()),
        faults=tuple(walk.faults),
    )


@attrs.define
class _Walk:
    """One pass over a composed document; counts what it expands, so that aliases cannot multiply without end."""

    text: str
    places: dict[str, Place] = attrs.field(factory=dict)
    faults: list[tuple[str, Fault]] = attrs.field(factory=list)
    scalars: list[Span] = attrs.field(factory=list)
    expanded: int = 0

    def say(self, rule: str, path: str, message: str, span: Span) -> None:
        """Note a fault of the text."""
        self.faults.append((rule, Fault(path, message, span=span)))

    def document(self, name: str) -> Any:
        """The plain value of the text; None where it holds nothing.

        Raises:
            _FaultError: It cannot be read.
        """
        if len(self.text) > MAX_CHARACTERS:
            message = f"it has {len(self.text):,} characters; YAML is read up to {MAX_CHARACTERS:,}"
            raise _FaultError("too-large", message, 0)
        try:
            root = compose(self.text, name)
        except NotYamlError as error:
            if error.deep:
                raise _too_deep(0) from None
            raise _FaultError("broken-syntax", error.fault, error.offset or 0) from None
        if root is None or (root.id == "scalar" and not root.value):
            self.say("empty-file", "", "the file holds nothing; it must hold a map with a batch size", Span(0, 1))
            return None
        value, _ = self._node(root, "", 1, 0)
        if not isinstance(value, dict):
            kind = "a list" if isinstance(value, list) else "a single value"
            start = root.start_mark.index
            self.say("not-a-map", "", f"the top level is {kind}; it must be a map of keys", Span(start, start + 1))
        return value

    def comments(self) -> Iterator[Span]:
        """Where comments stand: from a # on that is in no value."""
        starts = sorted((span.start, span.end) for span in self.scalars)
        found = _COMMENT.search(self.text) if starts else None
        while found:
            before = bisect.bisect_right(starts, (found.start(), len(self.text))) - 1
            inside = before >= 0 and starts[before][1] > found.start()
            if not inside:
                yield Span(found.start(), found.end())
            found = _COMMENT.search(self.text, starts[before][1] if inside else found.end())

    def _node(self, node: Any, path: str, depth: int, floor: int | None) -> tuple[Any, Span]:
        """A value and where it stands.

        Args:
            node: As composed.
            path: Its dotted path.
            depth: Maps and lists around it, and itself.
            floor: The end of what stands before it; a node from further up came in by an alias. None inside of one.
        """
        self.expanded += 1
        start = node.start_mark.index
        if depth > MAX_DEPTH:
            raise _too_deep(start)
        if self.expanded > MAX_ENTRIES:
            message = f"it holds more than {MAX_ENTRIES:,} entries with its aliases written out; a config has hundreds"
            raise _FaultError("too-large", message, start)
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
            raise _FaultError(
                "broken-syntax", f"{path} carries the tag {tag}; only plain values are read", node.start_mark.index
            )
        if kind in ("str", "timestamp"):
            return str(node.value)
        try:
            return SCALARS[kind](str(node.value))
        except (ValueError, KeyError):
            long = len(str(node.value)) > MAX_DIGITS // 2  # 4,300 digits are 3,571 of them in base 16
            rule = "number-too-large" if long else "broken-syntax"
            message = f"{path} is {str(node.value)[:40]!r}; it must be {MUST[kind]}"
            raise _FaultError(rule, message, span.start, span.end) from None

    def _list(self, node: Any, path: str, depth: int, floor: int | None, span: Span) -> tuple[list[Any], Span]:
        items: list[Any] = []
        last = span.start
        for index, item in enumerate(node.value):
            here = f"{path}[{index}]"
            value, at = self._node(item, here, depth + 1, None if floor is None else last)
            items.append(value)
            last = max(last, at.end)
            if floor is not None:
                self.places[here] = Place(None, at)
        return items, span if node.flow_style else Span(span.start, last)

    def _map(self, node: Any, path: str, depth: int, floor: int | None, span: Span) -> tuple[dict[str, Any], Span]:
        pairs: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        last = span.start
        for key_node, value_node in node.value:
            name, key = self._key(key_node)
            here = f"{path}.{name}" if path else name
            value, at = self._node(value_node, here, depth + 1, None if floor is None else key.end)
            if at.end <= key.start:  # nothing stands behind the colon
                at = Span(key.end + 1, key.end + 1)
            last = max(last, at.end)
            if floor is not None:
                self.scalars.append(key)
                self._note(here, name in pairs, key, at)
            if key_node.tag == f"{CORE}merge" or (name == "<<" and key_node.style is None):
                for source in reversed(value) if isinstance(value, list) else (value,):
                    merged.update(source if isinstance(source, dict) else {})
            else:
                pairs[name] = value
        return {**merged, **pairs}, span if node.flow_style else Span(span.start, last)

    def _note(self, path: str, again: bool, key: Span, value: Span) -> None:
        if again:
            lines = [self.text.count("\n", 0, span.start) + 1 for span in (self.places[path].key or key, key)]
            message = f"{path} is given twice, first in line {lines[0]}, again in line {lines[1]}"
            self.say("duplicate-key", path, message, key)
        self.places[path] = Place(key, value)

    def _key(self, node: Any) -> tuple[str, Span]:
        start, end = node.start_mark.index, node.end_mark.index
        if node.id != "scalar":
            raise _FaultError("broken-syntax", "a map or list stands where a key must", start)
        properties = _PROPERTIES.match(self.text, start, end)
        return str(node.value), Span(properties.end() if properties else start, end)


def _too_deep(start: int) -> _FaultError:
    message = f"it nests deeper than {MAX_DEPTH} levels; a config is a few levels deep"
    return _FaultError("too-deep", message, start)
