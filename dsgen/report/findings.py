"""Findings as text for a person, with the line they point at, and as plain JSON types."""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dsgen import targets
from dsgen.deepspeed import surface
from dsgen.documents.document import Document
from dsgen.linting.files import Linted
from dsgen.linting.fixes import Tally
from dsgen.report.excerpts import excerpt, printable
from dsgen.shapes.findings import Finding, Severity

__all__ = ["Paint", "assumed", "block", "coloured", "data", "plural", "summary", "text", "uncoloured"]

Paint = Callable[[str, str], str]

_GUTTER = 8  # columns before the source line: five of its number, a space, a bar, a space
_INDENT = " " * 6  # of what stands below the source line
_LONGEST = 110  # columns of running text; longer lines are hard to read on a wide terminal
_LONG_WORD = re.compile(r"(\S{60})\S{40,}(\S{20})")  # a key or value too long for a message; both ends stay


def uncoloured(words: str, _: str) -> str:
    """Words without colour."""
    return words


def coloured(words: str, role: str) -> str:
    """Words in the colour of their role, for a terminal."""
    from dsgen.report.colours import styled  # it loads rich

    return styled(words, role)


def text(linted: Sequence[Linted], width: int, paint: Paint = uncoloured) -> str:
    """Every finding of every file, with a final newline; nothing when there is none."""
    lines = [
        line for file in linted for finding in file.findings for line in block(finding, file.document, width, paint)
    ]
    return "".join(f"{line}\n" for line in lines)


def block(finding: Finding, document: Document, width: int, paint: Paint = uncoloured) -> list[str]:
    """One finding: its place and rule, the line with carets, the message and the fix."""
    role = str(finding.severity)
    place = f"{printable(document.name)}:{finding.line}:{finding.column}"
    lines = [f"{paint(place, 'place')} {paint(role, role)} {finding.rule} {paint(f'({finding.code})', 'faint')}"]
    message = _shortened(finding.message)
    source = document.line(finding.line) if document.text else ""
    if source.strip():
        shown = excerpt(source, finding.column - 1, finding.end_column - 1, width - _GUTTER)
        gutter, carets = paint(f"{'':5} |", "faint"), paint("^" * shown.carets, role)
        lines.append(f"{paint(f'{finding.line:5} |', 'faint')} {shown.line.rstrip()}")
        beside = _GUTTER + shown.caret + shown.carets + 1 + len(message) <= width
        lines.append(f"{gutter} {' ' * shown.caret}{carets}{f' {message}' if beside else ''}")
        lines += [] if beside else _wrapped(message, width)
    else:
        lines += _wrapped(message, width)
    if finding.fix is not None:
        kind = "safe" if finding.fix.safe else "unsafe"
        fix = _wrapped(f"fix: {_shortened(finding.fix.title)} ({kind})", width)
        lines += [fix[0].replace("fix:", paint("fix:", "fix"), 1), *fix[1:]]
    return lines


def summary(
    linted: Sequence[Linted],
    width: int,
    *,
    fixed: Tally | None = None,
    written: bool = False,
    tried: str | None = None,
) -> str:
    """The last lines: how many findings, what mends them, what is not shown, and for what the files were linted.

    Args:
        linted: Every file, after its fixes.
        width: Columns of the terminal.
        fixed: How many findings the fixes that were applied took away; None where none were asked for.
        written: Whether those fixes are in the files, or only in a diff.
        tried: Which fixes were asked for: "safe", "all", or None.
    """
    shown = [finding for file in linted for finding in file.findings]
    fixes = [finding.fix for finding in shown if finding.fix is not None]
    safe = sum(fix.safe for fix in fixes)
    unsafe = len(fixes) - safe
    if tried:
        did = _did(fixed, "fixed" if written else "would fix") if fixed is not None else ""
        parts = [f"{did}, {len(shown) or 'none'} left" if did else _count(shown, len(linted))]
        parts[0] += f" ({unsafe} fixable with --unsafe-fixes)" if unsafe and tried == "safe" else ""
        stuck = safe if tried == "safe" else len(fixes)
        parts += [f"{plural(stuck, 'fix')} could not be made"] if stuck else []
    else:
        parts = [_count(shown, len(linted))]
        parts[0] += f", {safe} fixable with --fix" if safe else ""
        parts[0] += f" ({unsafe} more with --unsafe-fixes)" if safe and unsafe else ""
        parts[0] += f", {unsafe} fixable with --fix --unsafe-fixes" if unsafe and not safe else ""
    parts += _unseen(linted)
    explains = f" `dsgen rule {shown[0].code}` explains." if shown else ""
    lines = _filled(f"{'; '.join(parts)}.{explains}", width)
    lines += _filled(assumed(linted), width)
    for file in linted:
        for unused in file.unused:
            why = unused.wrong or "suppresses nothing"
            lines += _filled(f"note: {printable(unused.where)}: ignore[{printable(unused.word)}]: {why}", width)
    return "".join(f"{line}\n" for line in lines)


def _did(fixed: Tally, verb: str) -> str:
    """What fixing did, in the numbers that were said before it; "" where it did nothing."""
    if fixed == Tally():
        return ""
    gone = f", {fixed.gone} more went with {'it' if fixed.fixed == 1 else 'them'}" if fixed.gone else ""
    arisen = f" and {fixed.arisen} that came up by {'it' if fixed.fixed == 1 else 'them'}" if fixed.arisen else ""
    return f"{verb} {plural(fixed.fixed, 'finding')}{arisen}{gone}"


def assumed(linted: Iterable[Linted]) -> str:
    """For which program and release the files were linted where nobody said it; "" where it was said."""
    said = []
    configs = [file for file in linted if isinstance(file.document.config, Mapping) and file.document.kind != "launch"]
    programs = Counter(file.target for file in configs if file.source.guessed)
    if programs:
        each = [(targets.find(name).title, count) for name, count in programs.most_common()]
        names = [f"{title} in {plural(count, 'file')}" if len(each) > 1 else title for title, count in each]
        said.append(f"for {', '.join(names)} (guessed{_guessed_from(programs)}: --target)")
    if any(not file.settings.deepspeed for file in configs):
        said.append(f"for DeepSpeed {surface.load().version} (the newest known: --deepspeed)")
    return f"Linted {' and '.join(said)}." if said else ""


def _guessed_from(programs: Counter[str]) -> str:
    """What tells who loads a file: that it has "auto", which the Trainer fills in, or has none."""
    if len(programs) > 1:
        return ' from "auto"'
    one = programs.total() == 1
    if targets.guess({}).name in programs:
        return f', as {"it has" if one else "they have"} no "auto"'
    return f' from {"its" if one else "their"} "auto"'


def data(linted: Iterable[Linted]) -> dict[str, Any]:
    """Every file with its findings as plain JSON types; the files without any too."""
    return {
        "files": [
            {
                "file": file.document.name,
                "findings": [_plain(finding.to_dict()) for finding in file.findings],
                "target": file.target,
                "target_guessed": file.source.guessed,
                "deepspeed": file.deepspeed,
                "suppressed": file.suppressed,
            }
            for file in linted
        ]
    }


def _count(shown: Sequence[Finding], files: int) -> str:
    if not shown:
        return f"no findings in {plural(files, 'file')}"
    where = f" in {plural(files, 'file')}" if files > 1 else ""
    return f"{plural(len(shown), 'finding')}{where}"


def _unseen(linted: Iterable[Linted]) -> list[str]:
    """How many findings are there and not shown, by severity, and how many a person has answered."""
    hidden = Counter(finding.severity for file in linted for finding in file.hidden)
    words = {Severity.INFO: "note", Severity.WARNING: "warning", Severity.ERROR: "error"}
    parts = [f"{plural(hidden[severity], words[severity])} hidden" for severity in Severity if hidden[severity]]
    lowest = min(hidden, default=Severity.INFO)
    if parts:
        parts[-1] += f", --severity {lowest} shows {'it' if hidden.total() == 1 else 'them'}"
    suppressed = sum(file.suppressed for file in linted)
    return [*parts, *([f"{suppressed} suppressed"] if suppressed else [])]


def plural(count: int, noun: str) -> str:
    """A count with its noun: "1 file", "2 files"."""
    return f"{count} {noun}{'' if count == 1 else 'es' if noun.endswith('x') else 's'}"


def _shortened(words: str) -> str:
    return _LONG_WORD.sub(r"\1...\2", printable(words))


def _wrapped(words: str, width: int) -> list[str]:
    return _filled(words, width, _INDENT)


def _filled(words: str, width: int, indent: str = "") -> list[str]:
    columns = max(min(width, _LONGEST), 40)
    return textwrap.wrap(
        words, columns, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False, tabsize=1
    )


def _plain(value: Any) -> Any:
    """A value that JSON can write: what is no finite number becomes its name."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
