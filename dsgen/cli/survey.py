"""`dsgen survey`: a tree of config files as tables of findings, per rule and per file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dsgen.cli import MISTAKE, OK
from dsgen.cli.lint_options import LEVELS, complain, lint_all, lint_options, nothing_there, settings_from, spare
from dsgen.cli.terminal import emit, width
from dsgen.documents.writing import write_atomically
from dsgen.shapes.errors import mistake

if TYPE_CHECKING:
    from dsgen.linting.files import Linted

__all__ = ["command"]


@click.command("survey")
@click.argument("files", nargs=-1, required=True, metavar="DIR...")
@lint_options
@click.option("--severity", type=click.Choice(LEVELS), help="The lowest that is counted (default: warning).")
@click.option("--format", "form", type=click.Choice(["text", "json", "csv"]), default="text", show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Where to write it (default: stdout).")
def command(files: tuple[str, ...], severity: str | None, form: str, output: str | None, **options: Any) -> int:
    """Lint a tree of files and count what was found, per rule, per file and in all.

    DIR is a folder, a file or a glob. The csv has one row per file and rule. Exit code 0 whatever was found.
    """
    import json

    from dsgen.report import survey

    checked, wrong = lint_all(files, settings_from(options, severity))
    linted = [file for file in checked if not _is_said(file, files)]
    if form == "text":
        report = survey.text(linted, width())
    else:
        report = survey.spreadsheet(linted) if form == "csv" else f"{json.dumps(survey.data(linted), indent=2)}\n"
    if output is None or output == "-":
        emit(report, {"text": "table", "csv": "page"}.get(form, form))
    else:
        spare(linted, output)
        write_atomically(output, report)
        click.echo(f"wrote {output}", err=True)
    return MISTAKE if wrong else OK


def _is_said(file: Linted, named: tuple[str, ...]) -> bool:
    """Whether a name that a person gave leads to no file, which is said; it is no file of the tree to count."""
    fault = nothing_there(file, named)
    if fault is None:
        return False
    complain(mistake(fault.message, where=file.document.name, code="unreadable"))
    return True
