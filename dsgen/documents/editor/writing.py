"""Keys and values as text, in the style of what stands around them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import attrs

from dsgen.documents.editor.layout import TextLayout, TextNode

__all__ = ["Form", "Incoming", "form_of", "reindented"]

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_PLAIN_TEXT = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_COLON = re.compile(r" ?: ?")
# What YAML 1.1 or 1.2 reads as something else than a text, and HJSON too (true, false, null).
_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))


@attrs.frozen(kw_only=True)
class Form:
    """How one section is written.

    Attributes:
        kind: Of the document: "json", "hjson" or "yaml".
        key_quote, quote: Around keys and around texts; empty for none.
        colon: Between key and value, with its blanks.
        comma: Between entries in one line, with its blanks.
        unit: One step of indentation.
        eol: The end of a line.
    """

    kind: str
    key_quote: str
    quote: str
    colon: str
    comma: str
    unit: str
    eol: str

    def key(self, name: str) -> str:
        """A key; in quotes where it cannot do without."""
        plain = not self.key_quote and _PLAIN_KEY.fullmatch(name)
        if plain and (self.kind != "yaml" or name.lower() not in _WORDS):
            return name
        return self._quoted(name, self.key_quote)

    def scalar(self, value: Any) -> str:
        """A value that is no map or list."""
        if isinstance(value, str):
            plain = not self.quote and _PLAIN_TEXT.fullmatch(value) and value.lower() not in _WORDS
            return value if plain else self._quoted(value, self.quote)
        said = json.dumps(value)
        if self.kind == "yaml" and isinstance(value, float):
            if value != value or value in (float("inf"), float("-inf")):
                return {"NaN": ".nan", "Infinity": ".inf"}.get(said, "-.inf")
            return said if "." in said else said.replace("e", ".0e")  # YAML 1.1 takes 1e-08 for a text
        return said

    def value(self, value: Any, indent: str | None) -> str:
        """A value in braces and brackets: a map over several lines from an indentation on, or all in one line."""
        if isinstance(value, (list, tuple)):
            return f"[{self.comma.join(self.value(item, None) for item in value)}]"
        if not isinstance(value, Mapping):
            return self.scalar(value)
        inner = None if indent is None else indent + self.unit
        return self.braced([f"{self.key(name)}{self.colon}{self.value(value[name], inner)}" for name in value], indent)

    def braced(self, entries: list[str], indent: str | None) -> str:
        """Entries that are text already, in braces."""
        if indent is None or not entries:
            return f"{{{self.comma.join(entries)}}}"
        line = f"{self.eol}{indent}{self.unit}"
        return f"{{{line}{f',{line}'.join(entries)}{self.eol}{indent}}}"

    def block(self, value: Any, indent: str) -> str:
        """A value of YAML with what stands between it and the colon before it: a map line by line, without braces."""
        if not isinstance(value, Mapping) or not value:
            return f" {self.value(value, None)}"
        line = f"{self.eol}{indent}{self.unit}"
        return "".join(f"{line}{self.key(name)}:{self.block(value[name], indent + self.unit)}" for name in value)

    def _quoted(self, text: str, quote: str) -> str:
        double = json.dumps(text, ensure_ascii=not text.isprintable())
        if quote != "'" or self.kind == "json":
            return double
        if self.kind == "yaml":
            return double if "\\" in double else f"""'{text.replace("'", "''")}'"""
        inside = double[1:-1].replace('\\"', '"').replace("'", "\\'")
        return f"'{inside}'"


@attrs.frozen(kw_only=True)
class Incoming:
    """A value that is put somewhere.

    Attributes:
        value: What it is.
        raw: Its text where it stands now, if it does; of a YAML value that is written line by line, all behind the
            colon.
        indent: What the lines of that text are indented by.
        commented: Whether there are comments in that text.
        comment: The comment behind it in its line, with the blanks before.
        notes: The comments in that text and behind it, for braces, which have no place for its lines.
        under: What lines that begin with those comments are indented by.
    """

    value: Any
    raw: str | None = None
    indent: str = ""
    commented: bool = False
    comment: str = ""
    notes: tuple[str, ...] = ()
    under: str = ""

    def text(self, form: Form, names: tuple[str, ...], indent: str | None) -> str:
        """The value, inside the sections of these names, from an indentation on or in one line."""
        if names:
            inner = None if indent is None else indent + form.unit
            return form.braced([f"{form.key(names[0])}{form.colon}{self.text(form, names[1:], inner)}"], indent)
        if self.raw is None and self.notes:
            return "".join(f"{note}{form.eol}{self.under}" for note in self.notes) + form.value(self.value, None)
        if self.raw is None or (indent is None and "\n" in self.raw and not self.commented):
            return form.value(self.value, indent)
        return self.raw if indent is None else reindented(self.raw, self.indent, indent)

    def ways(self, under: str = "") -> tuple[Incoming, ...]:
        """As it is; and to be written anew, should its text not do: comments in it then come before it, or it stays."""
        if self.raw is None or (self.commented and not (self.notes and under)):
            return (self,)
        if not self.commented:
            return self, attrs.evolve(self, raw=None, notes=())
        return self, attrs.evolve(self, raw=None, comment="", under=under)

    def aside(self, form: Form) -> str:
        """The comment behind it as one that leaves room for more in the line; YAML has none."""
        if not self.comment or form.kind == "yaml":
            return ""
        note = self.comment.strip()
        said = note if note.startswith("/*") else f"/* {note.lstrip('/#').strip()} */"
        return f" {said}" if said.count("*/") == 1 else ""


def reindented(text: str, old: str, new: str) -> str:
    """A text whose lines, but for the first, start with another indentation."""
    first, *others = text.split("\n")
    moved = [new + line.removeprefix(old) if line.strip() and line.startswith(old) else line for line in others]
    return "\n".join([first, *moved])


def form_of(layout: TextLayout, section: TextNode) -> Form:
    """How a section is written: as its last entry is, or else as the first of the document that shows it."""
    kind = layout.document.kind
    text = layout.text
    own = list(reversed(section.children))
    keyed = next((node for node in (*own, *layout.nodes()) if node.key), None)
    said = next((quote for quote in (_quote(layout, node) for node in (*own, *layout.nodes())) if quote), None)
    colon = ": "
    if keyed is not None and keyed.key is not None and keyed.place is not None:
        between = text[keyed.key.end : keyed.place.value.start]
        colon = between if _COLON.fullmatch(between) else colon
    key_quote = "" if kind == "yaml" else '"'
    if keyed is not None and keyed.key is not None:
        key_quote = text[keyed.key.start] if text[keyed.key.start] in "\"'" else ""
    compact = kind != "yaml" and not colon.endswith(" ")
    return Form(
        kind=kind,
        key_quote=key_quote,
        quote=(said or ("" if kind == "yaml" else '"')).strip(),
        colon=": " if kind == "yaml" else colon,
        comma="," if compact else ", ",
        unit=layout.unit if kind != "yaml" or "\t" not in layout.unit else "  ",
        eol=layout.eol,
    )


def _quote(layout: TextLayout, node: TextNode) -> str | None:
    """The quote around a value that is a text, a blank for none; None where the value says nothing of it."""
    if not isinstance(node.value, str) or node.place is None or layout.is_unquoted_text(node):
        return None
    quote = layout.text[node.place.value.start : node.place.value.start + 1]
    if layout.text.startswith("'''", node.place.value.start):
        return None
    return quote if quote in ("'", '"') else " "
