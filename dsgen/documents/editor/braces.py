"""Changes in maps and lists with braces or brackets: JSON, HJSON, and what YAML writes like them."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.documents.editor.layout import Patch, TextLayout, TextNode
from dsgen.documents.editor.writing import Form, Incoming, form_of

__all__ = ["adding", "removing"]


def adding(layout: TextLayout, section: TextNode, names: tuple[str, ...], incoming: Incoming) -> Iterator[list[Patch]]:
    """Ways to add an entry at the end of a map, or an item at the end of a list, the best first.

    Args:
        section: The map or list.
        names: The key, and those of new sections in it; none for an item of a list.
        incoming: The value.
    """
    way = _behind if section.children else _first
    if section.children:
        lined = layout.opens_line(section.children[-1])
    else:
        lined = bool(names) and (section.place is None or layout.opens_line(section))
    for one in incoming.ways(layout.indent(section.start) + layout.unit):
        yield way(layout, section, names, one, lined)
        yield way(layout, section, names, one, not lined)


def _entry(form: Form, names: tuple[str, ...], incoming: Incoming, indent: str | None) -> str:
    if not names:
        return incoming.text(form, (), indent)
    return f"{form.key(names[0])}{form.colon}{incoming.text(form, names[1:], indent)}"


def _behind(
    layout: TextLayout, section: TextNode, names: tuple[str, ...], incoming: Incoming, lined: bool
) -> list[Patch]:
    form = form_of(layout, section)
    inside = layout.inside(section)
    last = section.children[-1]
    end = layout.end(last)
    comma = layout.comma(last, inside.end)
    tail = layout.tail(end if comma is None else comma + 1, inside.end)
    patches: list[Patch] = []
    if comma is None and not layout.is_unquoted_text(last) and _has_commas(layout, section):
        patches.append((end, end, ","))
    closing = "" if comma is None else ","  # the last entry has one, so the new one gets one
    if not lined and not _ends_line(layout, tail):
        blank = "" if form.comma == "," else " "
        return [*patches, (tail, tail, f"{blank}{_entry(form, names, incoming, None)}{closing}{incoming.aside(form)}")]
    indent = _indent_behind(layout, section, last)
    comment = incoming.comment if _is_line_left(layout, tail) else ""
    new = f"{layout.eol}{indent}{_entry(form, names, incoming, indent)}{closing}{comment}"
    return [*patches, (tail, tail, new)]


def _first(
    layout: TextLayout, section: TextNode, names: tuple[str, ...], incoming: Incoming, lined: bool
) -> list[Patch]:
    form = form_of(layout, section)
    inside = layout.inside(section)
    outer = layout.indent(inside.start)
    indent = outer + layout.unit
    notes = [end for start, end in layout.comments.items() if inside.start <= start < inside.end]
    if not notes:
        if not lined:
            entry = _entry(form, names, incoming, None)
            return [(inside.start, inside.end, f"{entry}{incoming.aside(form)}")]
        entry = f"{indent}{_entry(form, names, incoming, indent)}{incoming.comment}"
        return [(inside.start, inside.end, f"{layout.eol}{entry}{layout.eol}{outer}")]
    last = max(notes)
    if not lined and "\n" not in layout.text[last : inside.end]:
        return [(last, last, f" {_entry(form, names, incoming, None)}{incoming.aside(form)}")]
    entry = f"{layout.eol}{indent}{_entry(form, names, incoming, indent)}{incoming.comment}"
    closing = "" if "\n" in layout.text[last : inside.end] else f"{layout.eol}{outer}"
    return [(last, last, f"{entry}{closing}")]


def _has_commas(layout: TextLayout, section: TextNode) -> bool:
    """Whether the entries of a section have commas between them; HJSON can do without."""
    if layout.document.kind != "hjson":
        return True
    around: TextNode | None = section
    while around is not None:  # as this section does it, or those around it do
        for child in around.children[:-1]:
            if not layout.is_unquoted_text(child):
                return layout.comma(child, len(layout.text)) is not None
        around = around.around
    return layout.is_braced(layout.root) and not any(layout.is_unquoted_text(child) for child in section.children)


def _ends_line(layout: TextLayout, tail: int) -> bool:
    """Whether a comment that takes the rest of its line ends at a place."""
    return any(end == tail and not layout.text.startswith("/*", start) for start, end in layout.comments.items())


def _is_line_left(layout: TextLayout, at: int) -> bool:
    return layout.is_blank(at, layout.line_end(at).start)


def _indent_behind(layout: TextLayout, section: TextNode, last: TextNode) -> str:
    indent = layout.indent(last.start)
    if layout.opens_line(last):
        return indent
    start = layout.inside(section).start
    same_line = section.place is not None or layout.is_braced(section)
    return indent + layout.unit if same_line and layout.line_start(start) == layout.line_start(last.start) else indent


def removing(layout: TextLayout, node: TextNode) -> Iterator[list[Patch]]:
    """Ways to take an entry or item out of a map or list with braces, the best first."""
    section = node.around
    if section is None:
        return
    inside = layout.inside(section)
    before, after = node.before(), node.after()
    start, end = node.start, layout.end(node)
    limit = after.start if after else inside.end
    comma = layout.comma(node, limit)
    patches: list[Patch] = []
    behind = end
    is_led = layout.text[layout.line_start(start) : start].strip() == ","  # its own comma opens its line
    if is_led and (comma is None or layout.line_end(end).start < comma):
        yield [layout.lines(start, layout.tail(end, limit))]
    if comma is not None and layout.line_end(end).start < comma:  # the comma opens a later line
        patches.append((comma, comma + 1, ""))
    elif comma is not None:
        behind = comma + 1
    earlier = layout.comma(before, start) if before and not after and comma is None else None
    if earlier is not None:
        patches.append((earlier, earlier + 1, ""))
    tail = layout.tail(behind, limit)
    if len(section.children) == 1 and layout.is_blank(inside.start, start) and layout.is_blank(tail, inside.end):
        yield [(inside.start, inside.end, "" if layout.is_braced(section) else f"{{}}{layout.eol}")]
    if layout.opens_line(node) and _is_line_left(layout, tail):
        yield [*patches, layout.lines(start, tail)]
    yield [*patches, _part(layout, node, behind, tail, limit)]
    yield [*patches, (start, behind, "")]
    if len(section.children) == 1:
        yield [*patches, (start, behind, "" if layout.is_braced(section) else "{}")]


def _part(layout: TextLayout, node: TextNode, behind: int, tail: int, limit: int) -> Patch:
    """What goes of lines that hold more than the entry: it, its comma, and the blanks on one side."""
    before, after = node.before(), node.after()
    start = node.start
    if after is None:
        behind = tail
    right = layout.blanks_behind(behind)
    if after and (right == after.start or layout.opens_line(node)):
        return start, right, ""
    if after is None and before and not layout.is_unquoted_text(before):
        comma = layout.comma(before, start)
        left = layout.end(before) if comma is None else comma + 1
        if layout.is_blank(left, start) and not _is_line_left(layout, behind):
            return left, behind, ""
    return layout.blanks_before(start), behind, ""
