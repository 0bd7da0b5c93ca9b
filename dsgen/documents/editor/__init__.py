"""Edits done in the text of a document, so that its comments, its order and its layout stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from dsgen.documents.document import Document
from dsgen.documents.editor import blocks, braces
from dsgen.documents.editor.layout import Patch, TextLayout, TextNode, patched
from dsgen.documents.editor.plain_edits import (
    Spot,
    Steps,
    apply_to_config,
    assigned,
    dotted_path,
    emptied_section,
    find,
    is_duplicate,
    is_rename,
    removed,
    renamed,
    same_json,
    spot,
    target,
    value_at,
    value_steps,
    with_value,
)
from dsgen.documents.editor.writing import Incoming, form_of
from dsgen.documents.hjson import reader
from dsgen.shapes.findings import Assign, Edit, Erase, Move, Remove

__all__ = ["apply", "apply_to_config"]

_Reader = Callable[[str, str], Document]


def apply(document: Document, edits: Iterable[Edit]) -> str:
    """The text of a document with edits done in it; nothing else in it changes.

    The text reads as what `apply_to_config` makes of the document's config, where a section stays that has a comment
    of its own in it. Every comment stays but those that stand in a value or in the line of an entry that goes; what
    moves takes those with it.

    Args:
        document: JSON, HJSON or YAML that can be read. Where its config is a part of a file, that part is edited.
        edits: Done in order.

    Raises:
        ValueError: An edit cannot be done: see `apply_to_config`; or the text has no place for it, such as a key that
            stands twice, or a value of YAML that is an alias.
    """
    in_file = document.edits_in_file(edits) if document.whole is not None else tuple(edits)
    if in_file is None:
        raise ValueError(f"{document.name} has no place for what is edited")
    document = document.whole or document
    read = _reader(document.kind)
    for edit in in_file:
        document = _edited(document, edit, read)
    return document.text


def _reader(kind: str) -> _Reader:
    if kind == "yaml":
        from dsgen.documents.yaml import (
            documents as yaml_documents,  # it loads ruamel, which a JSON file does not need
        )

        return yaml_documents.read
    return reader.read


def _edited(document: Document, edit: Edit, read: _Reader) -> Document:
    config = document.config
    if document.kind == "launch" or not isinstance(config, Mapping):
        raise ValueError(f"{document.name} holds no config to edit")
    if isinstance(edit, Erase):
        return read(f"{document.text[: edit.start]}{document.text[edit.end :]}", document.name)
    if isinstance(edit, Assign):
        steps = find(config, edit.path)
        if steps is None:
            return _add(document, spot(config, edit.path), Incoming(value=edit.value), read)
        return _assign(document, steps, edit.value, read)
    steps = value_steps(config, edit.path)
    if isinstance(edit, Remove):
        return _remove(document, steps, read)
    return _move(document, edit, steps, read)


def _move(document: Document, edit: Move, steps: Steps, read: _Reader) -> Document:
    if edit.to == edit.path:
        return document
    if is_duplicate(document.config, steps, edit.to):
        return _take_away(document, steps, read)
    new = target(document.config, steps, edit.to)
    if is_rename(steps, new):
        return _rename(document, steps, new.names[0], read)
    layout = TextLayout(document)
    document = _add(document, new, _leaving(layout, layout.node(steps)), read)
    return _take_away(document, steps, read)


def _take_away(document: Document, steps: Steps, read: _Reader) -> Document:
    """The document without what has moved, and without the sections that hold nothing else."""
    layout = TextLayout(document)
    kept = {
        dotted_path(around.steps) for around in _around(layout.node(steps)) if _has_own_comment(layout, around, steps)
    }
    return _remove(document, emptied_section(document.config, steps, kept), read)


def _leaving(layout: TextLayout, node: TextNode) -> Incoming:
    """A value with its text and its comments, to be put elsewhere."""
    is_block = isinstance(node.value, (Mapping, list)) and not layout.is_braced(node)
    value_start = node.place.value.start if node.place else node.start
    start = layout.colon(node) if is_block and node.key else value_start
    end = layout.end(node)
    indent = " " * (value_start - layout.line_start(value_start)) if is_block else layout.indent(node.start)
    ahead = f"{layout.eol}{indent}" if is_block and not node.key else ""
    comma = layout.comma(node, len(layout.text))
    behind = end if comma is None or layout.line_end(end).start < comma else comma + 1
    tail = layout.tail(behind, len(layout.text))
    alone = layout.opens_line(node) and layout.is_blank(tail, layout.line_end(tail).start)
    comments = [layout.text[layout.blanks_before(at) : to] for at, to in layout.comments.items() if end <= at < tail]
    inside = [layout.text[at:to] for at, to in layout.comments.items() if start <= at < end]
    return Incoming(
        value=node.value,
        raw=f"{ahead}{layout.text[start:end]}" or None,
        indent=indent,
        commented=bool(inside),
        notes=(*inside, *map(str.strip, comments)) if layout.document.kind == "yaml" and is_block else (),
        comment=comments[0] if alone and len(comments) == 1 and "\n" not in comments[0] else "",
    )


def _around(node: TextNode) -> Iterator[TextNode]:
    around = node.around
    while around is not None:
        yield around
        around = around.around


def _has_own_comment(layout: TextLayout, section: TextNode, steps: Steps) -> bool:
    """Whether a comment stands in a section that belongs to nothing on the way to what moves."""
    if section.place is None:
        return True
    inner = layout.node(steps[: len(section.steps) + 1])
    start, end = inner.start, layout.tail(layout.end(inner), len(layout.text))
    first = section.place.value.start if layout.is_braced(section) else layout.colon(section)
    return any(first <= at < layout.end(section) and not start <= at < end for at in layout.comments)


def _assign(document: Document, steps: Steps, value: Any, read: _Reader) -> Document:
    if same_json(value_at(document.config, steps), value):
        return document
    layout = TextLayout(document)
    node = layout.node(steps)
    return _first_that_holds(document, assigned(document.config, steps, value), _assigning(layout, node, value), read)


def _assigning(layout: TextLayout, node: TextNode, value: Any) -> Iterator[list[Patch]]:
    if node.place is None:
        return
    start, end = node.place.value.start, layout.end(node)
    form = form_of(layout, node.around or node)
    if layout.document.kind == "yaml" and node.key and (start >= end or not _stays_in_line(layout, node, value)):
        yield from blocks.replacing(layout, node, Incoming(value=value))
    if isinstance(node.value, str) and isinstance(value, str) and layout.document.kind != "json":
        first = layout.text[start:end][:1]
        quote = first if first in ("'", '"') else ""
        yield [(start, end, attrs.evolve(form, quote=quote).scalar(value))]
    if _swallowed_comma(layout, node):
        yield [(start, end, f"{form.value(value, None)},")]
    in_one_line = layout.is_braced(node) and end - start > len("{}") and "\n" not in layout.text[start:end]
    if layout.opens_line(node) and not in_one_line and layout.document.kind != "yaml":
        yield [(start, end, form.value(value, layout.indent(node.start)))]
    yield [(start, end, form.value(value, None))]


def _swallowed_comma(layout: TextLayout, node: TextNode) -> bool:
    """Whether a text without quotes ends in the comma before the next entry, as True does where true is meant."""
    if layout.document.kind != "hjson" or not isinstance(node.value, str) or node.around is None or node.place is None:
        return False
    text = layout.text[node.place.value.start : layout.end(node)]
    return text.endswith(",") and text == node.value and node is not node.around.children[-1]


def _stays_in_line(layout: TextLayout, node: TextNode, value: Any) -> bool:
    """Whether a value of YAML, and what it becomes, both stand behind the colon."""
    if layout.is_braced(node):
        return True
    in_block = node.around is not None and not layout.is_braced(node.around)
    return not isinstance(node.value, (Mapping, list)) and not (in_block and isinstance(value, Mapping) and value)


def _rename(document: Document, steps: Steps, name: str, read: _Reader) -> Document:
    layout = TextLayout(document)
    node = layout.node(steps)
    key = node.key
    if key is None:
        raise ValueError(f"{dotted_path(steps)} has no key")
    form = form_of(layout, node.around or node)
    quote = layout.text[key.start] if layout.text[key.start] in "\"'" else ""
    ways = ([(key.start, key.end, attrs.evolve(form, key_quote=one).key(name))] for one in (quote, '"'))
    return _first_that_holds(document, renamed(document.config, steps, name), ways, read)


def _add(document: Document, new: Spot, incoming: Incoming, read: _Reader) -> Document:
    layout = TextLayout(document)
    section = layout.node(new.steps)
    return _first_that_holds(
        document, with_value(document.config, new, incoming.value), _adding(layout, section, new, incoming), read
    )


def _adding(layout: TextLayout, section: TextNode, new: Spot, incoming: Incoming) -> Iterator[list[Patch]]:
    if layout.document.kind == "yaml":
        around = section.around
        if section.children and not layout.is_braced(section):
            yield from blocks.adding(layout, section, new.names, incoming)
            return
        if not section.children and new.names and (around is None or not layout.is_braced(around)):
            yield from blocks.growing(layout, section, new.names, incoming)
    yield from braces.adding(layout, section, new.names, incoming)


def _remove(document: Document, steps: Steps, read: _Reader) -> Document:
    layout = TextLayout(document)
    node = layout.node(steps)
    in_block = layout.document.kind == "yaml" and node.around is not None and not layout.is_braced(node.around)
    ways = (blocks if in_block else braces).removing(layout, node)
    return _first_that_holds(document, removed(document.config, steps), ways, read)


def _first_that_holds(document: Document, config: Any, ways: Iterable[list[Patch]], read: _Reader) -> Document:
    """The document after the first of several changes that reads as a config."""
    for patches in ways:
        changed = read(patched(document.text, patches), document.name)
        kinds = ("json",) if document.kind == "json" else ("json", document.kind)
        if changed.kind in kinds and same_json(changed.config, config) and len(changed.faults) <= len(document.faults):
            return changed
    raise ValueError(f"{document.name} cannot be edited there without a change elsewhere")
