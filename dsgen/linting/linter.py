"""Documents to findings: every rule that holds for the release, asked once, and their faults put in their places."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import attrs

from dsgen import targets
from dsgen.deepspeed import surface
from dsgen.documents.document import Document, unwritten
from dsgen.linting.agreed import agreed
from dsgen.linting.consequences import traced
from dsgen.linting.rules import RULES, Rule
from dsgen.linting.runs import judged_fix
from dsgen.linting.subjects import Facts, Subject
from dsgen.shapes.findings import Fault, Finding, Severity
from dsgen.targets import Target

__all__ = ["lint", "lint_config"]


def lint_config(
    config: Mapping[str, Any],
    *,
    target: str | None = None,
    deepspeed: str | None = None,
    facts: Facts | None = None,
    rules: Iterable[Rule] | None = None,
) -> tuple[Finding, ...]:
    """The findings of a config that no file holds: all on line 1. For the arguments see `lint`."""
    return lint(unwritten(config), target=target, deepspeed=deepspeed, facts=facts, rules=rules)


def lint(
    document: Document,
    *,
    target: str | None = None,
    deepspeed: str | None = None,
    facts: Facts | None = None,
    rules: Iterable[Rule] | None = None,
) -> tuple[Finding, ...]:
    """The findings of one document, in the order of the text.

    Args:
        document: What a reader made of the file.
        target: The program that loads it; without one it is guessed from the config.
        deepspeed: The release that reads it ("0.19", "0.18.2"); without one the newest known.
        facts: What stands in no file.
        rules: The only ones that are asked; without them all are.

    Raises:
        DsgenError: An unknown target or release.
    """
    known = surface.load(deepspeed)
    program: Target = targets.find(target) if target else targets.guess(document.config)
    subject = Subject(
        config=document.config if isinstance(document.config, Mapping) and document.kind != "launch" else {},
        surface=known,
        target=program,
        document=document,
        facts=facts or Facts(),
    )
    asked = RULES if rules is None else rules
    findings = traced(subject, agreed(_judged(subject, _asks(document), asked)), functools.partial(_said, asked))
    return tuple(sorted(findings, key=lambda item: (item.line, item.column, item.code)))


def _asks(document: Document) -> tuple[str, ...]:
    """Which kinds of rule can say something of a document: of one that is no config, only those of its text."""
    if document.kind == "launch":
        return ("launch", "job")
    return ("text", "config", "job") if isinstance(document.config, Mapping) else ("text", "job")


def _judged(subject: Subject, kinds: tuple[str, ...], rules: Iterable[Rule]) -> list[Finding]:
    general: list[tuple[Fault, Finding]] = []
    own: list[Finding] = []
    for rule in rules:
        if rule.reads in kinds and _holds(rule, subject.version):
            for fault, finding in _asked(rule, subject):
                if rule.general:
                    general.append((fault, finding))
                else:
                    own.append(finding)
    loud = {item.path for item in own if item.severity is not Severity.INFO}
    fatal = {item.path for item in own if item.severity is Severity.ERROR}
    refused = {item.path for _, item in general if item.severity is Severity.ERROR}
    return own + [
        item
        for fault, item in general
        if not (item.path in fatal if item.severity is Severity.ERROR else _said_already(fault, item, loud, refused))
    ]


def _said_already(fault: Fault, finding: Finding, loud: set[str], refused: set[str]) -> bool:
    """Whether another rule speaks of the same key, or of the one that makes it a fault, or DeepSpeed refuses it."""
    cause = fault.because if fault.because != finding.path else None
    around = (cause, cause.rpartition(".")[0]) if cause else ()
    return bool(loud & {finding.path, *around} or refused & {finding.path, *around[:1]})


def _asked(rule: Rule, subject: Subject) -> Iterator[tuple[Fault, Finding]]:
    try:
        faults: Iterable[Fault] = list(rule.check(subject))
    except Exception as error:  # a rule that breaks is a finding about the rule; the others still speak
        said = f"the rule {rule.name} itself broke ({type(error).__name__}: {error}); please report this config"
        fault = Fault("", said, severity=Severity.WARNING)
        yield fault, attrs.evolve(_placed(subject.document, rule, fault), code="DSG000", rule="rule-broke")
        return
    for fault in faults:
        finding = _placed(subject.document, rule, fault)
        yield fault, attrs.evolve(finding, fix=judged_fix(subject, finding)) if finding.fix is not None else finding


def _said(rules: Iterable[Rule], subject: Subject, names: Collection[str]) -> set[tuple[str, str]]:
    """Rule and path of every fault that some rules see."""
    asked = (rule for rule in rules if rule.name in names)
    return {(rule.name, fault.path) for rule in asked for fault in _faults(rule, subject)}


def _faults(rule: Rule, subject: Subject) -> Iterable[Fault]:
    """What a rule says of a config that nobody wrote; one that breaks says nothing."""
    try:
        return list(rule.check(subject))
    except Exception:  # it has broken, or will, on the config that was written, and says so there
        return ()


def _placed(document: Document, rule: Rule, fault: Fault) -> Finding:
    span = fault.span or document.span(fault.path, fault.on)
    line, column = document.position(span.start)
    last, end = document.position(span.end)
    return Finding(
        code=rule.code,
        rule=rule.name,
        severity=fault.severity or rule.severity,
        path=fault.path,
        message=fault.message,
        line=line,
        column=column,
        end_column=end if last == line else column + 1,
        fix=fault.fix,
    )


def _holds(rule: Rule, version: tuple[int, ...]) -> bool:
    after = rule.since is None or version >= _numbers(rule.since)
    return after and (rule.until is None or version < _numbers(rule.until))


@functools.lru_cache(maxsize=256)
def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
