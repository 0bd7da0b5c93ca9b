"""A proof as text: the outcome first, then what was changed for it, then every check."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsgen.proving.prover import Adaptation, Check, Proof

__all__ = ["text"]

_WIDTH = 80
_NAME_WIDTH = 38
_VALUE_WIDTH = 34


def text(proof: Proof) -> str:
    """What a person reads after `dsgen prove`; ends without a line break."""
    lines = [_headline(proof), *_cause(proof)]
    if proof.adaptations:
        lines += ["changed for the proof", *(line for item in proof.adaptations for line in _adaptation(item))]
    if proof.checks:
        count = len(proof.checks)
        lines += [f"observed ({count - len(proof.failed_checks)} of {count} checks hold)"]
        lines += [line for check in sorted(proof.checks, key=lambda check: check.ok) for line in _check(check)]
    lines += [f"note: {note}" for note in proof.notes]
    return "\n".join(lines)


def _headline(proof: Proof) -> str:
    where = f"{proof.ranks} {proof.device.upper() if proof.device == 'cpu' else 'GPU'} ranks"
    engine = f"DeepSpeed {proof.versions.get('deepspeed', '?')}, torch {proof.versions.get('torch', '?')}"
    tail = f"{where}, {engine}, {proof.seconds:.1f} s"
    if proof.outcome == "proved":
        return f"proved: initialized, stepped, saved and loaded\n  {tail}"
    if proof.outcome == "not run":
        return f"not run\n  {tail}"
    count = len(proof.failed_checks)
    checks = "1 check does not hold" if count == 1 else f"{count} checks do not hold"
    what = f"in phase {proof.phase}" if proof.error else checks
    return f"failed: {what}\n  {tail}"


def _cause(proof: Proof) -> list[str]:
    lines = _wrap(proof.error, "  ") if proof.error else []
    if proof.site:
        lines.append(f"  at {proof.site}")
    return lines + (_wrap(proof.todo, "  to do: ") if proof.todo else [])


def _adaptation(item: Adaptation) -> list[str]:
    change = textwrap.wrap(
        f"{item.key}: {_short(item.written)} -> {_short(item.used)}",
        _WIDTH,
        initial_indent="  ",
        subsequent_indent="      ",
        break_on_hyphens=False,
    )
    return [*change, *_wrap(item.why, "      ")]


def _check(check: Check) -> list[str]:
    """One line where the check holds; what was expected below where it does not."""
    mark = "ok " if check.ok else "NOT"
    lines = [f"  {mark} {check.name:<{_NAME_WIDTH}} {_short(check.observed)}"]
    if not check.ok:
        lines = [f"  {mark} {check.name}", *_wrap(f"expected {check.expected}", "        ")]
        lines += _wrap(f"observed {check.observed}", "        ")
    return lines


def _short(value: object) -> str:
    """A value in one column; a list of equal values once."""
    if value is None:
        return "-"
    if isinstance(value, (list, tuple)):
        items = [str(item) for item in value]
        shown = f"{items[0]} on each rank" if len(items) > 1 and len(set(items)) == 1 else ", ".join(items)
    elif isinstance(value, float):
        shown = f"{value:.6g}"
    else:
        shown = str(value)
    return shown if len(shown) <= _VALUE_WIDTH else f"{shown[: _VALUE_WIDTH - 3]}..."


def _wrap(words: str, indent: str) -> list[str]:
    """Words in lines of 80 columns; later lines are indented as far as the first."""
    return textwrap.wrap(words, _WIDTH, initial_indent=indent, subsequent_indent=" " * len(indent)) or [indent]
