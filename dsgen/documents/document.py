"""A config file as text with the place of every key and value in it."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from dsgen.shapes.findings import Edit, Erase, Fault, Move, Span

__all__ = ["Document", "TextPlace", "unwritten"]


@attrs.frozen
class TextPlace:
    """Where a key and its value stand; an item of a list has no key."""

    key: Span | None
    value: Span


@attrs.frozen(kw_only=True, eq=False)
class Document:
    """One parsed file.

    Attributes:
        name: What to call it in findings: its path, or "<stdin>".
        text: The text that the places count in, without a byte order mark.
        kind: "json" (what Python's json reads), "hjson" (what only DeepSpeed's reader takes), "yaml", "launch" (a
            script or environment file, whose `config` maps the variables it sets to their text), or "python" (a
            program, whose `config` is what it tells its trainer).
        config: What it holds as plain values; anything where the top level is no map.
        places: Dotted path (`section.key`, `list[0].key`) -> where it stands.
        comments: Where the comments stand, in order.
        faults: What is wrong with the text itself, by the name of the rule that says it.
        whole: The file as its own reader read it, where the config is only a part of it or is made from it.
        paths: Then, dotted path in the config -> in the file; what lies below a path lies below its counterpart, and
            "" stands for the whole config.
    """

    name: str
    text: str
    kind: str
    config: Any
    places: Mapping[str, TextPlace] = attrs.field(factory=dict)
    comments: tuple[Span, ...] = ()
    faults: tuple[tuple[str, Fault], ...] = ()
    whole: Document | None = None
    paths: Mapping[str, str] = attrs.field(factory=dict)
    _starts: list[int] = attrs.field(init=False)

    @_starts.default
    def _line_starts(self) -> list[int]:
        starts = [0]
        newline = self.text.find("\n")
        while newline >= 0:
            starts.append(newline + 1)
            newline = self.text.find("\n", newline + 1)
        return starts

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both 1-based, the column in characters."""
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        """A line of the text by its 1-based number, without its end."""
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r")

    def span(self, path: str, on: str = "key") -> Span:
        """Where a path stands: its key or its value, or the nearest key around it that is written; else the start."""
        while path:
            place = self.places.get(path)
            if place is not None:
                return place.key if on == "key" and place.key is not None else place.value
            on = "key"
            path = path.rpartition("[" if path.endswith("]") else ".")[0]
        root = self.places.get("")
        return root.key or root.value if root is not None else Span(0, min(1, len(self.text)))

    def in_file(self, path: str) -> str | None:
        """The path in the file of a path in the config; None where the file has no place for it."""
        if self.whole is None:
            return path
        around, below = path, ""
        while around not in self.paths:
            if not around:
                return None
            around = around.rpartition("[" if around.endswith("]") else ".")[0]
            below = path[len(around) :]
        return f"{self.paths[around]}{below}" if around or not path else f"{self.paths['']}.{path}"

    def edits_in_file(self, edits: Iterable[Edit]) -> tuple[Edit, ...] | None:
        """The same edits with the paths of the file; None where one of them has no place there."""
        moved: list[Edit] = []
        for edit in edits:
            if isinstance(edit, Erase):
                return None
            path = self.in_file(edit.path)
            to = self.in_file(edit.to) if isinstance(edit, Move) else ""
            if path is None or to is None:
                return None
            moved.append(Move(path, to) if isinstance(edit, Move) else attrs.evolve(edit, path=path))
        return tuple(moved)


def unwritten(config: Any, name: str = "<config>") -> Document:
    """A document for a config that no file holds; every place is its start."""
    return Document(name=name, text="", kind="json", config=config)
