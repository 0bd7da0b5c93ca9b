"""What four programs do with the public configs beside what lint says of each: the table of docs/agreement.md."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from program_verdicts import NAMES  # benchmarks/, beside this script
from transcribe import DATA, PROGRAMS

from dsgen import targets
from dsgen.documents.hjson import reader
from dsgen.linting.linter import lint
from dsgen.shapes.findings import Severity

__all__ = ["Judged", "judged", "section", "verdicts"]

DEEPSPEED = "0.19.8"


@attrs.frozen(kw_only=True)
class Judged:
    """One program with one config: what it did, and the rules that call an error there."""

    program: str
    file: str
    verdict: str
    error: str
    rules: tuple[str, ...]


def verdicts() -> list[dict[str, Any]]:
    """The record, as benchmarks/program_verdicts.py wrote it."""
    rows: list[dict[str, Any]] = json.loads((DATA / PROGRAMS).read_text(encoding="utf-8"))
    return rows


def judged(configs: Mapping[str, Path]) -> Iterator[Judged]:
    """Every record with what lint says of the file for that program; `configs` are the files by their number."""
    documents = {name: reader.read(path.read_text(encoding="utf-8"), path.name) for name, path in configs.items()}
    for row in verdicts():
        findings = lint(documents[row["file"]], target=row["program"], deepspeed=DEEPSPEED)
        yield Judged(
            program=row["program"],
            file=row["file"],
            verdict=row["verdict"],
            error=row["error"],
            rules=tuple(sorted({item.rule for item in findings if item.severity is Severity.ERROR})),
        )


def section(rows: Sequence[Judged]) -> list[str]:
    """The lines of the page."""
    lines = [
        "## The program that loads it",
        "",
        "Each public config was given to four programs, each run whole with a toy model on a CPU until two steps of",
        "the optimizer were made or an error came; the arguments repeat what the config fixes. Where the batch sizes",
        "need more than one rank, a fake process group stands in for the others. Lint knows the program and no more.",
        "`benchmarks/program_verdicts.py` asks them, `benchmarks/data/program-verdicts.json` has each answer.",
        "",
        "| program | trains: no error of lint | trains: an error | stops: an error | stops: none | not judged |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for program in NAMES:
        mine = [row for row in rows if row.program == program]
        counts = [
            sum(row.verdict == verdict and bool(row.rules) is loud for row in mine)
            for verdict, loud in (("runs", False), ("runs", True), ("stops", True), ("stops", False))
        ]
        rest = sum(row.verdict == "not judged" for row in mine)
        lines.append(f"| {targets.find(program).title} | {' | '.join(map(str, (*counts, rest)))} |")
    reasons = sorted({row.error for row in rows if row.verdict == "not judged"})
    return [*lines, "", "Not judged are those in which the machine spoke and not the config:", *_listed(reasons), ""]


def _listed(reasons: Sequence[str]) -> list[str]:
    return ["", *(f"- {reason}" for reason in reasons)]
