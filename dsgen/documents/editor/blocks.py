"""Changes in the maps and lists of YAML that are written line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.documents.editor.layout import Patch, TextLayout, TextNode
from dsgen.documents.editor.writing import Form, Incoming, form_of, reindented

__all__ = ["adding", "growing", "removing", "replacing"]


def adding(layout: TextLayout, section: TextNode, names: tuple[str, ...], incoming: Incoming) -> Iterator[list[Patch]]:
    """Ways to add an entry at the end of a map, or an item at the end of a list, the best first.

    Args:
        section: The map or list.
        names: The key, and those of new sections in it; none for an item of a list.
        incoming: The value.
    """
    last = section.children[-1]
    end = layout.end(last)
    tail = layout.tail(end, len(layout.text))
    for one in incoming.ways():
        form = form_of(layout, section)
        if names:
            indent = " " * _column(layout, last)
            entry = _entry(form, names, one, indent)
        else:
            indent = layout.text[layout.line_start(last.start) : last.start]
            entry = one.text(form, (), None)
        yield [(tail, tail, f"{layout.eol}{indent}{entry}{incoming.comment}")]


def growing(layout: TextLayout, section: TextNode, names: tuple[str, ...], incoming: Incoming) -> Iterator[list[Patch]]:
    """Ways to turn the empty {} of a map into its first entry."""
    patches: list[Patch] = []
    if section.place is None:
        inside = layout.inside(section)
        start, end, line, margin = inside.start - 1, inside.end + 1, "", ""
    else:
        patches = [(layout.colon(section), layout.end(section), "")]
        start = end = layout.tail(layout.end(section), len(layout.text))
        line, margin = layout.eol, " " * _column(layout, section) + form_of(layout, section).unit
    for one in incoming.ways():
        entry = _entry(form_of(layout, section), names, one, margin)
        yield [*patches, (start, end, f"{line}{margin}{entry}{incoming.comment}")]


def _entry(form: Form, names: tuple[str, ...], incoming: Incoming, indent: str) -> str:
    head, *others = names
    if others:
        inner = indent + form.unit
        return f"{form.key(head)}:{form.eol}{inner}{_entry(form, tuple(others), incoming, inner)}"
    if incoming.raw is None:
        return f"{form.key(head)}:{form.block(incoming.value, indent)}"
    if not isinstance(incoming.value, (Mapping, list)) or incoming.raw[0] in "{[":
        return f"{form.key(head)}: {reindented(incoming.raw, incoming.indent, indent)}"
    return f"{form.key(head)}:{reindented(incoming.raw, incoming.indent, indent + form.unit)}"


def _column(layout: TextLayout, node: TextNode) -> int:
    return node.start - layout.line_start(node.start)


def replacing(layout: TextLayout, node: TextNode, incoming: Incoming) -> Iterator[list[Patch]]:
    """Ways to write another value behind the colon of an entry."""
    start = layout.colon(node)
    form = form_of(layout, node.around or node)
    indent = " " * _column(layout, node)
    yield [(start, layout.end(node), form.block(incoming.value, indent))]


def removing(layout: TextLayout, node: TextNode) -> Iterator[list[Patch]]:
    """Ways to take an entry or item out of a map or list without braces, the best first."""
    section, after = node.around, node.after()
    if section is None:
        return
    text = layout.text
    start, end = node.start, layout.end(node)
    tail = layout.tail(end, len(text))
    head = text[layout.line_start(start) : start]
    dash = layout.dash_above(node)
    if len(section.children) == 1:
        yield from _emptied(layout, node, tail)
    elif dash is not None:
        yield _lines(layout, node, tail)
    elif not head.strip() or (node.key is None and not head.replace("-", "", 1).strip()):
        yield [layout.lines(start, tail)]
    elif after is not None:  # the first key, or the first item, behind the dash of an item
        between = text[tail : after.start]
        if not (between.replace("-", "", 1) if node.key is None else between).strip():
            yield [(start, after.start, "")]
        yield [(layout.blanks_before(start), tail, "")]


def _emptied(layout: TextLayout, node: TextNode, tail: int) -> Iterator[list[Patch]]:
    """Ways to leave an empty map or list where the last thing in it goes."""
    section = node.around or node
    empty = "[]" if node.key is None else "{}"
    start = node.start
    first = layout.line_start(start)
    if section.key is not None:
        colon = layout.colon(section)
        if layout.is_blank(colon, first):
            yield [(colon, tail, f" {empty}")]
        yield [(colon, colon, f" {empty}"), *_lines(layout, node, tail)]
    dash = layout.dash_above(node)
    yield [*([] if dash is None else [(dash, dash + 1, "")]), (start, tail, empty)]
    if section.key is None and section.place is not None:  # `- - item`: its own dash stands behind that of the list
        yield [(section.place.value.start, tail, empty)]


def _lines(layout: TextLayout, node: TextNode, tail: int) -> list[Patch]:
    """The removal of an entry's lines, and of the dash above them; a comment between the two stays."""
    dash = layout.dash_above(node)
    if dash is None:
        return [layout.lines(node.start, tail)]
    alone = layout.is_blank(layout.line_start(dash), dash)
    if layout.is_blank(dash + 1, node.start):
        return [layout.lines(dash, tail) if alone else (dash, tail, "")]
    whole = alone and layout.is_blank(dash + 1, layout.line_end(dash).start)
    gone = layout.lines(dash, dash + 1) if whole else (dash, layout.blanks_behind(dash + 1), "")
    return [gone, layout.lines(node.start, tail)]
