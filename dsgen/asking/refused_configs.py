"""What of a config stops DeepSpeed, or the program before it, for a job."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from dsgen.documents.document import Document
from dsgen.jobs.job import Job
from dsgen.linting.linter import lint
from dsgen.linting.model_loads import ModelLoad
from dsgen.linting.rules.text import yaml_not_read
from dsgen.linting.subjects import Subject
from dsgen.linting.suppressions import in_comments, quiet
from dsgen.rendering.judgement import WEIGHED, facts
from dsgen.shapes.findings import Finding, Severity

__all__ = ["read_otherwise", "refusals"]


def refusals(job: Job, document: Document, target: str, loads: tuple[ModelLoad, ...] = ()) -> list[Finding]:
    """The errors of the linter, but for those that a plan weighs itself.

    Args:
        job: What trains.
        document: The config.
        target: The program that loads it, as `--target` takes it.
        loads: How that program loads its model.
    """
    heard = lint(document, target=target, deepspeed=job.version, facts=attrs.evolve(facts(job), loads=loads))
    return [item for item in heard if item.severity is Severity.ERROR and item.rule not in WEIGHED]


def read_otherwise(subject: Subject) -> Iterator[str]:
    """That DeepSpeed takes a config in YAML for something else than is counted, as `dsgen lint` warns of it."""
    document = subject.document
    heard = lint(document, target=subject.target.name, rules=(yaml_not_read.RULE,))
    for item in quiet(heard, in_comments(document)).findings:
        yield f"{document.name}:{item.line}: {item.message} (dsgen rule {item.code}); it is counted as YAML has it"
