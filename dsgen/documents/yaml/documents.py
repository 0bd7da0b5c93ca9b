"""YAML, read with the place of every key and value and of every fault."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from typing import Any

from dsgen.documents.document import Document
from dsgen.documents.hjson.reader import MAX_DEPTH
from dsgen.documents.yaml.reader import NotYamlError, compose
from dsgen.documents.yaml.walk import FaultError, YamlWalk
from dsgen.shapes.findings import Fault, Span

__all__ = ["read"]

MAX_CHARACTERS = 200_000  # ruamel.yaml reads some 80,000 a second; a config has a few thousand
_COMMENT = re.compile(r"(?:^|(?<=[ \t\r\n]))#[^\r\n]*")


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
    except FaultError as error:
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


class _Walk(YamlWalk):
    """The walk that notes what is wrong and goes on."""

    def __init__(self, text: str) -> None:
        super().__init__(text, MAX_DEPTH)
        self.faults: list[tuple[str, Fault]] = []

    def say(self, rule: str, path: str, message: str, span: Span) -> None:
        """Note a fault of the text."""
        self.faults.append((rule, Fault(path, message, span=span)))

    def document(self, name: str) -> Any:
        """The plain value of the text; None where it holds nothing.

        Raises:
            FaultError: It cannot be read.
        """
        if len(self.text) > MAX_CHARACTERS:
            message = f"it has {len(self.text):,} characters; YAML is read up to {MAX_CHARACTERS:,}"
            raise FaultError("too-large", message, 0)
        try:
            root = compose(self.text, name)
        except NotYamlError as error:
            if error.deep:
                message = f"it nests deeper than {MAX_DEPTH} levels; a config is a few levels deep"
                raise FaultError("too-deep", message, 0) from None
            raise FaultError("broken-syntax", error.fault, error.offset or 0) from None
        if root is None or (root.id == "scalar" and not root.value):
            self.say("empty-file", "", "the file holds nothing; it must hold a map with a batch size", Span(0, 1))
            return None
        value, _ = self.node(root, "", 1, 0)
        if not isinstance(value, dict):
            kind = "a list" if isinstance(value, list) else "a single value"
            start = root.start_mark.index
            self.say("not-a-map", "", f"the top level is {kind}; it must be a map of keys", Span(start, start + 1))
        return value

    def pair(self, path: str, again: bool, nodes: tuple[Any, Any], value: Any) -> None:
        """Note a key that is given twice; one that an alias brings in has no place, and is not noted."""
        before = self.places.get(path)
        if again and before is not None:
            _, key = self.key(nodes[0])
            lines = [self.text.count("\n", 0, span.start) + 1 for span in (before.key or key, key)]
            message = f"{path} is given twice, first in line {lines[0]}, again in line {lines[1]}"
            self.say("duplicate-key", path, message, key)

    def comments(self) -> Iterator[Span]:
        """Where comments stand: from a # on that is in no value."""
        starts = sorted((span.start, span.end) for span in self.scalars)
        match = _COMMENT.search(self.text) if starts else None
        while match:
            before = bisect.bisect_right(starts, (match.start(), len(self.text))) - 1
            inside = before >= 0 and starts[before][1] > match.start()
            if not inside:
                yield Span(match.start(), match.end())
            match = _COMMENT.search(self.text, starts[before][1] if inside else match.end())
