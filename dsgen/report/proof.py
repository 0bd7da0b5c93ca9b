"""A proof as text: the outcome first, then what was changed for it, then every check; and as JUnit's XML."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from dsgen.proving.proven_models import TINY_LLAMA
from dsgen.report.wrapping import wrapped

if TYPE_CHECKING:
    from dsgen.proving.prover import Adaptation, Check, Foreseen, Proof

__all__ = ["junit", "text"]

_WIDTH = 80
_NAME_WIDTH = 38
_VALUE_WIDTH = 34
_KINDS = {"proved": "", "failed": "failure", "not run": "skipped"}  # outcome -> element of a test case
_MOST_RULES = 3  # in one line


def text(proof: Proof) -> str:
    """What a person reads after `dsgen prove`; ends without a line break."""
    lines = [_headline(proof), *_cause(proof), *_foreseen(proof)]
    if proof.filled:
        lines += [f"filled in as by {proof.target}"]
        lines += [f"  {key}: {_short(value)}" for key, value in proof.filled.items()]
    if proof.adaptations:
        lines += ["changed for the proof", *(line for item in proof.adaptations for line in _adaptation(item))]
    if proof.checks:
        count = len(proof.checks)
        lines += [f"observed ({count - len(proof.failed_checks)} of {count} checks hold)"]
        lines += [line for check in sorted(proof.checks, key=lambda check: check.ok) for line in _check(check)]
    lines += [f"note: {note}" for note in proof.notes]
    return "\n".join(lines)


def _headline(proof: Proof) -> str:
    kind = "CPU" if proof.device == "cpu" else "GPU"
    where = f"{proof.ranks} {kind} rank{'s' if proof.ranks > 1 else ''}"
    engine = f"DeepSpeed {proof.versions.get('deepspeed', '?')}, torch {proof.versions.get('torch', '?')}"
    where += f" ({proof.card})" if proof.card else ""
    tail = f"{where}, {engine}, {proof.seconds:.1f} s"
    if proof.model != TINY_LLAMA:  # which goes without saying
        tail = "\n".join([tail, *wrapped(proof.model, "  ")])
    if proof.outcome == "proved":
        return f"proved: initialized, stepped, saved and loaded\n  {tail}"
    if proof.outcome == "not run":
        return f"not run\n  {tail}"
    count = len(proof.failed_checks)
    checks = "1 check does not hold" if count == 1 else f"{count} checks do not hold"
    what = f"in phase {proof.phase}" if proof.error else checks
    return f"failed: {what}\n  {tail}"


def _foreseen(proof: Proof) -> list[str]:
    """Which rule of lint would have said it; or that nothing was said about the config."""
    if proof.outcome == "failed" and not proof.is_verdict:
        return ["  this is no verdict of DeepSpeed about the config"]
    if proof.foreseen is None:
        return []
    if not proof.foreseen:
        hole = "dsgen lint did not foresee this: it has a hole. Please report it with the config and the lines above."
        return wrapped(hole, "  ") + _also(proof.also, "of something else")
    first, *others = proof.foreseen
    said = "foreseen by dsgen lint" if proof.outcome == "failed" else "dsgen lint says so"
    lines = wrapped(f"{said}: {first.rule} ({first.code}): {first.message}", "  ")
    return lines + _also(others, "of the same") + _also(proof.also, "of something else")


def _also(items: Sequence[Foreseen], of: str) -> list[str]:
    names = ", ".join(f"{item.rule} ({item.code})" for item in items[:_MOST_RULES])
    return wrapped(f"dsgen lint also says, {of}: {names}", "  ") if names else []


def junit(proofs: Sequence[tuple[str, Proof]]) -> str:
    """Proofs with their names as JUnit's XML: one test case each; not run is skipped, what is no verdict an error."""
    kinds = [_KINDS[proof.outcome] if proof.is_verdict or proof.outcome != "failed" else "error" for _, proof in proofs]
    suite = ElementTree.Element(
        "testsuite",
        name="dsgen prove",
        tests=str(len(proofs)),
        failures=str(kinds.count("failure")),
        errors=str(kinds.count("error")),
        skipped=str(kinds.count("skipped")),
        time=f"{sum(proof.seconds for _, proof in proofs):.2f}",
    )
    for (name, proof), kind in zip(proofs, kinds, strict=True):
        case = ElementTree.SubElement(
            suite, "testcase", classname="dsgen.prove", name=name, time=f"{proof.seconds:.2f}"
        )
        if kind:
            said = ElementTree.SubElement(case, kind, message=_xml(proof.error or f"{len(proof.failed_checks)} checks"))
            said.text = _xml(text(proof))
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def _xml(words: str) -> str:
    """Words without the control characters that XML cannot hold."""
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in words)


def _cause(proof: Proof) -> list[str]:
    lines = wrapped(proof.error, "  ") if proof.error else []
    if proof.site:
        lines.append(f"  at {proof.site}")
    return lines + (wrapped(proof.todo, "  to do: ") if proof.todo else [])


def _adaptation(item: Adaptation) -> list[str]:
    change = textwrap.wrap(
        f"{item.key}: {_short(item.written)} -> {_short(item.used)}",
        _WIDTH,
        initial_indent="  ",
        subsequent_indent="      ",
        break_on_hyphens=False,
    )
    return [*change, *wrapped(item.why, "      ")]


def _check(check: Check) -> list[str]:
    """One line where the check holds; what was expected below where it does not."""
    mark = "ok " if check.ok else "NOT"
    lines = [f"  {mark} {check.name:<{_NAME_WIDTH}} {_short(check.observed)}"]
    if not check.ok:
        lines = [f"  {mark} {check.name}", *wrapped(f"expected {check.expected}", "        ")]
        lines += wrapped(f"observed {check.observed}", "        ")
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
