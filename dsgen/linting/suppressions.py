"""Findings that a person has answered: in a comment of the file or in its sidecar; and answers to nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import attrs

from dsgen.documents.document import Document
from dsgen.linting.settings import alike, knows, rules_named
from dsgen.shapes.findings import Finding, Span
from dsgen.shapes.near_misses import offer

__all__ = ["Quieted", "Suppression", "in_comments", "quiet"]

_MARK = re.compile(r"dsgen:\s*ignore\b(?:\s*\[([^\]]*)\])?")


@attrs.frozen(kw_only=True)
class Suppression:
    """One place that says which findings to leave out.

    Attributes:
        where: File and line, or file and key, as a person finds it.
        word: What it names: a rule's name or code, or the start of codes.
        path: Only findings at this dotted key or below it; None for any.
        line: Only findings on this line of the file; None for any.
        wrong: Why it can suppress nothing, where that is plain: no such rule.
    """

    where: str
    word: str
    path: str | None = None
    line: int | None = None
    wrong: str = ""

    def covers(self, finding: Finding) -> bool:
        """Whether it answers a finding."""
        if self.wrong or (self.line is not None and finding.line != self.line):
            return False
        if self.path is not None and not _at_or_below(finding.path, self.path):
            return False
        return finding.rule in rules_named(self.word)


@attrs.frozen(kw_only=True)
class Quieted:
    """The findings that are left, how many are answered, and the suppressions that answer none."""

    findings: tuple[Finding, ...]
    suppressed: int
    unused: tuple[Suppression, ...]


def quiet(findings: Iterable[Finding], suppressions: Iterable[Suppression]) -> Quieted:
    """Take out the findings that a suppression covers; one that covers none is unused."""
    said = tuple(suppressions)
    used: set[Suppression] = set()
    left: list[Finding] = []
    total = 0
    for finding in findings:
        total += 1
        covering = [one for one in said if one.covers(finding)]
        used.update(covering)
        if not covering:
            left.append(finding)
    unused = tuple(one for one in said if one not in used)
    return Quieted(findings=tuple(left), suppressed=total - len(left), unused=unused)


def in_comments(document: Document) -> Iterator[Suppression]:
    """What the comments of a file suppress.

    `# dsgen: ignore[rule]` at the end of a line speaks of that line; on a line of its own it speaks of the next line
    that holds more than a comment.
    """
    marks = [(span, match) for span in document.comments for match in [_MARK.search(_text(document, span))] if match]
    if not marks:
        return
    alone = {line for span in document.comments if _is_alone(document, span) for line in _lines(document, span)}
    for span, match in marks:
        first, last = _lines(document, span)[0], _lines(document, span)[-1]
        where, line = f"{document.name}:{first}", first
        if first in alone:
            line = last + 1
            while line in alone or (line <= document.text.count("\n") and not document.line(line).strip()):
                line += 1
        words = [word.strip() for word in (match[1] or "").split(",") if word.strip()]
        if not words:
            yield Suppression(where=where, word="", wrong="it names no rule: ignore[rule-name]")
        for word in words:
            yield Suppression(where=where, word=word, line=line, wrong=_unknown(word))


def _unknown(word: str) -> str:
    if knows(word):
        return ""
    close = alike(word)
    return f"no such rule{f'; {offer(close)}' if close else ''}"


def _at_or_below(path: str, section: str) -> bool:
    return path == section or path.startswith((f"{section}.", f"{section}["))


def _text(document: Document, span: Span) -> str:
    return document.text[span.start : span.end]


def _is_alone(document: Document, span: Span) -> bool:
    line, column = document.position(span.start)
    return not document.line(line)[: column - 1].strip()


def _lines(document: Document, span: Span) -> range:
    last = document.position(max(span.start, span.end - 1))[0]
    return range(document.position(span.start)[0], last + 1)
