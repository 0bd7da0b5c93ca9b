"""Fixes of a launch file: a variable renamed, removed or set otherwise where it stands."""

from __future__ import annotations

from collections.abc import Iterable

from dsgen.documents.document import Document
from dsgen.linting.launch_files.files import scan
from dsgen.shapes.findings import Assign, Edit, Move, Span

__all__ = ["edited"]

_OPENS = ("then", "do", "else", "!", "{", "(")  # words of the shell that a command must follow
_CLOSES = ("fi", "done", "else", "elif", "}", ")", ";;", "esac")  # and those it must precede


def edited(document: Document, edits: Iterable[Edit]) -> str:
    """The text of a launch file after edits of its variables; everything else stays as it was.

    Args:
        document: What `read` made of the file.
        edits: Paths are variables. A new value is written as it is; what is not set in the file is left alone.
    """
    launch = scan(document.text, document.name)
    changes: list[tuple[Span, str]] = []
    for edit in edits:
        settings = (item for item in launch.settings if item.name == edit.path)
        options = (item for item in launch.options if f"deepspeed {item.name}" == edit.path)
        changes += [_change(document.text, edit, item.key, item.at, item.whole) for item in settings]
        changes += [_change(document.text, edit, item.span, item.span, item.span) for item in options]
    text, end = document.text, len(document.text)
    for span, new in sorted(set(changes), key=lambda change: change[0].start, reverse=True):
        if span.end <= end:  # of two edits of one place the later one in the text wins
            text, end = text[: span.start] + new + text[span.end :], span.start
    return text


def _change(text: str, edit: Edit, key: Span, value: Span, whole: Span) -> tuple[Span, str]:
    if isinstance(edit, Move):
        return key, edit.to.rpartition(" ")[2]
    if isinstance(edit, Assign):
        return value, str(edit.value)
    return (whole, ":") if _must_be_a_command(text, whole) else (_gap(text, whole), "")


def _must_be_a_command(text: str, span: Span) -> bool:
    """Whether the shell wants some command in a place: what stood there was all of a branch, or one of a chain."""
    before, after = text[: span.start].split()[-1:], text[span.end :].lstrip(" \t;").split()[:1]
    opened = any(word in _OPENS or word.endswith(("&&", "||", "|")) for word in before)
    same_line = bool(text[text.rfind("\n", 0, span.start) + 1 : span.start].strip())
    return opened and (same_line or not after or after[0] in _CLOSES)


def _gap(text: str, span: Span) -> Span:
    """What goes with a removed place: its whole line when nothing else stands there, else the space beside it."""
    start = text.rfind("\n", 0, span.start) + 1
    stop = text.find("\n", span.end)
    stop = len(text) if stop < 0 else stop
    if before := text[start : span.start].rstrip(" \t"):
        after = text[span.end : stop].lstrip(" \t")
        twice = before.endswith(";") and after.startswith(";")  # two semicolons would be another word
        return Span(start + len(before), stop - len(after) + 1 if twice else span.end)
    if text[span.end : stop].strip(" \t\r;"):
        return Span(span.start, stop - len(text[span.end : stop].lstrip(" \t;")))
    return Span(start, min(stop + 1, len(text)))
