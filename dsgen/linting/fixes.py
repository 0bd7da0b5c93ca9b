"""Findings mended in the text of a document: one fix after the other, each kept only if it mends and breaks nothing."""

from __future__ import annotations

import collections
import contextlib
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs

from dsgen.deepspeed.keys import lookup
from dsgen.documents import editor
from dsgen.documents.document import Document
from dsgen.documents.editor import apply_to_config
from dsgen.linting import launch_files
from dsgen.shapes.findings import Edit, Finding, Fix, Move, Remove, Severity

__all__ = ["MARK", "MAX_ROUNDS", "FixResult", "Linter", "Reader", "Tally", "apply_to_config", "diff", "fix",
           "is_fixable"]  # fmt: skip

MARK = "byte-order-mark"  # the rule whose fix leaves the text of a document as it is
MAX_ROUNDS = 10  # one fix can make way for the next (renamed, then moved); no chain of the rules is near this long

Linter = Callable[[Document], tuple[Finding, ...]]
"""What finds the faults of a document."""

Reader = Callable[[str, str], Document]
"""What makes a document of a text and a name; it raises nothing."""

# Sections that mean something even when they are empty: their presence is asked for, or a program needs them.
_MEANT_EMPTY = (
    "zero_optimization",
    "zero_optimization.zenflow",
    "optimizer",
    "optimizer.params",
    "scheduler",
    "scheduler.params",
    "activation_checkpointing",
)
_OF_TEXT = "DSG0"  # codes of rules about how a file is written
_Place = tuple[str, str]  # a finding's code and path
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_SPELLED = re.compile(r'[\x00-\x1f\x7f"\\]')  # letters of a file's name that a diff cannot hold as they are


@attrs.frozen
class Tally:
    """How many findings fixing took away, so that what is said behind it agrees with what was said before.

    Attributes:
        fixed: Findings that were there and could be fixed.
        gone: Others that were there and went with those.
        arisen: Findings that came up by a fix, and were fixed too.
    """

    fixed: int = 0
    gone: int = 0
    arisen: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.fixed + other.fixed, self.gone + other.gone, self.arisen + other.arisen)


@attrs.frozen(kw_only=True)
class FixResult:
    """What fixing made of a document.

    Attributes:
        text: The new text, without a byte order mark; the old one where nothing was fixed.
        applied: The findings that were mended, in the order in which they were.
        tally: How many of them were there at first, and how many came up.
        remaining: The findings of the new text.
    """

    text: str
    applied: tuple[Finding, ...]
    tally: Tally
    remaining: tuple[Finding, ...]


def is_fixable(finding: Finding, *, unsafe: bool) -> bool:
    """Whether a finding has a fix that may be applied: a safe one, or any."""
    return finding.fix is not None and (unsafe or finding.fix.safe)


def fix(
    document: Document,
    *,
    unsafe: bool,
    lint: Linter,
    read: Reader,
    only: Callable[[Finding], bool] | None = None,
) -> FixResult:
    """Mend what can be mended in a document; fixing the result again changes nothing.

    A fix stays only if its finding is gone afterwards and no error is there that was not there before.

    Args:
        document: What a reader made of the file; one that cannot be read, or is no config, stays as it is.
        unsafe: Whether to apply the unsafe fixes as well.
        lint: The findings of a document.
        read: Makes a document of a new text and the document's name.
        only: Which findings to mend; all without it.
    """
    at_first = lint(document)
    marked = any(finding.rule == MARK for finding in at_first)  # without its mark it has the same text
    work = _Work(lint=lint, read=read, seen=set() if marked else {document.text})
    asked = [finding for finding in at_first if only is None or only(finding)]
    state = _Mending(document, at_first, (), tuple((_place(finding), finding) for finding in asked), 0)
    for _ in range(MAX_ROUNDS):
        before = state
        for rule in _rules(state.findings):
            wanted = [
                finding
                for finding in state.findings
                if finding.rule == rule and is_fixable(finding, unsafe=unsafe) and (only is None or only(finding))
            ]
            state = _mended(work, state, _apart(wanted))
        if state is before:
            break
    fixable = sum(is_fixable(finding, unsafe=unsafe) for finding in asked)
    stuck = sum(is_fixable(finding, unsafe=unsafe) for _, finding in state.standing)
    fixed = fixable - stuck
    tally = Tally(fixed, len(asked) - len(state.standing) - fixed, state.arisen)
    return FixResult(text=state.document.text, applied=state.applied, tally=tally, remaining=state.findings)


def diff(old: str, new: str, name: str) -> str:
    """The change of a file as a unified diff, as `patch` and `git apply -p0` read it; empty where nothing changed.

    Args:
        old, new: The texts, a byte order mark included.
        name: The file's name on both sides.
    """
    named = _quoted(name)
    lines = difflib.unified_diff(_LINE.findall(old), _LINE.findall(new), named, named)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _quoted(name: str) -> str:
    """A name as GNU diff writes it: one with a space ends at a tab, one with control characters stands in quotes."""
    spelled = _SPELLED.sub(lambda match: f"\\{ord(match[0]):03o}", name)
    if spelled != name or name != name.strip():
        return f'"{spelled}"'
    return f"{name}\t" if " " in name else name


@attrs.frozen(eq=False)
class _Mending:
    """A document with its findings, and the findings mended on the way to it.

    Attributes:
        document: The document as it is now.
        findings: Its findings.
        applied: Those that were mended, in order.
        standing: Of the findings at first those that still stand, each with the place where it does.
        arisen: How many of the mended ones were not among the first.
    """

    document: Document
    findings: tuple[Finding, ...]
    applied: tuple[Finding, ...]
    standing: tuple[tuple[_Place, Finding], ...]
    arisen: int


@attrs.frozen(eq=False)
class _Work:
    """What fixing needs all the way; `seen` keeps two fixes from undoing each other without end."""

    lint: Linter
    read: Reader
    seen: set[str]


def _rules(findings: Sequence[Finding]) -> Iterable[str]:
    """The rules of findings, in their order, but those about the text first: an entry that another fix puts behind a
    text without quotes has no comma before it, with which that text would go on."""
    return dict.fromkeys(one.rule for one in sorted(findings, key=lambda one: not one.code.startswith(_OF_TEXT)))


def _apart(findings: Iterable[Finding]) -> list[Finding]:
    """Those findings whose fixes touch nothing that an earlier one's touches."""
    taken: list[str] = []
    chosen = []
    for finding in findings:
        touched = [path for edit in _edits(finding) for path in _touched(edit)]
        if not any(_overlap(path, other) for path in touched for other in taken):
            chosen.append(finding)
            taken.extend(touched)
    return chosen


def _touched(edit: Edit) -> Iterator[str]:
    for path in (edit.path, *((edit.to,) if isinstance(edit, Move) else ())):
        yield re.sub(r"(\[\d+\])+$", "", path)  # taking an item out of a list moves those behind it


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith((f"{other}.", f"{other}[")) or other.startswith((f"{one}.", f"{one}["))


def _mended(work: _Work, state: _Mending, wanted: Sequence[Finding]) -> _Mending:
    """The state with these findings of one rule mended: all at once, or else those of each half that can be."""
    if not wanted:
        return state
    new = _attempt(work, state, wanted)
    if new is not None:
        work.seen.add(new.document.text)
        return new
    if len(wanted) == 1:
        return state
    middle = len(wanted) // 2
    state = _mended(work, state, wanted[:middle])
    return _mended(work, state, wanted[middle:])


def _attempt(work: _Work, state: _Mending, wanted: Sequence[Finding]) -> _Mending | None:
    """The state with all of the findings mended; None where that does not work out."""
    edits = [edit for finding in wanted for edit in _edits(finding)]
    try:
        text = _edited(state.document, edits)
    except ValueError:
        return None
    if text in work.seen:
        return None
    document = work.read(text, state.document.name)
    if left_empty := _emptied(state.document, document, edits):
        with contextlib.suppress(ValueError):
            document = work.read(_edited(document, left_empty), state.document.name)
    if document.text in work.seen:
        return None
    findings = work.lint(document)
    left = collections.Counter(_place(finding) for finding in findings)
    were = collections.Counter(_place(finding) for finding in state.findings)
    gone = collections.Counter(_place(finding) for finding in wanted)
    if any(left[place] > were[place] - count for place, count in gone.items()):
        return None
    others = (finding for finding in state.findings if finding not in wanted)
    if _errors(findings, ()) - _errors(others, edits):
        return None
    standing, arisen = _still_there(state.standing, gone, left, edits)
    return _Mending(document, findings, (*state.applied, *wanted), standing, state.arisen + arisen)


def _still_there(
    standing: Iterable[tuple[_Place, Finding]],
    gone: collections.Counter[_Place],
    left: collections.Counter[_Place],
    edits: Sequence[Edit],
) -> tuple[tuple[tuple[_Place, Finding], ...], int]:
    """Which of the first findings still stand after some were mended, and how many of those were not among them."""
    moves = [edit for edit in edits if isinstance(edit, Move)]
    gone, left = gone.copy(), left.copy()
    still = []
    for place, finding in standing:
        if gone[place]:
            gone[place] -= 1
            continue
        code, path = place
        there = code, _moved(path, moves)
        if left[there]:
            left[there] -= 1
            still.append((there, finding))
    return tuple(still), gone.total()


def _edited(document: Document, edits: Sequence[Edit]) -> str:
    if document.kind == "launch":
        return launch_files.edited(document, edits)
    return editor.apply(document, edits)


def _emptied(before: Document, after: Document, edits: Iterable[Edit]) -> list[Edit]:
    """The removal of each section that edits have left empty, unless it means something so or has a comment in it."""
    gone: list[Edit] = []
    for edit in edits:
        path = edit.path.rpartition(".")[0] if isinstance(edit, Remove) else ""
        there, value = lookup(after.config or {}, path) if path and path not in _MEANT_EMPTY else (False, None)
        if there and value == {} and lookup(before.config or {}, path)[1] and Remove(path) not in gone:
            span = after.span(path, "value")
            if "".join(after.text[span.start : span.end].split()) == "{}":
                gone.append(Remove(path))
    return gone


def _place(finding: Finding) -> _Place:
    return finding.code, finding.path


def _errors(findings: Iterable[Finding], edits: Iterable[Edit]) -> collections.Counter[tuple[str, str]]:
    """How many errors there are of each rule at each path, as the paths are after some edits."""
    moves = [edit for edit in edits if isinstance(edit, Move)]
    return collections.Counter(
        (finding.code, _moved(finding.path, moves)) for finding in findings if finding.severity is Severity.ERROR
    )


def _moved(path: str, moves: Iterable[Move]) -> str:
    for move in moves:
        if path == move.path or path.startswith((f"{move.path}.", f"{move.path}[")):
            path = move.to + path[len(move.path) :]
    return path


def _edits(finding: Finding) -> tuple[Edit, ...]:
    mending: Fix | None = finding.fix
    return mending.edits if mending else ()
