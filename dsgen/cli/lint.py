"""`dsgen lint`: what is wrong with config files, where, why, and how to mend it; or mends it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from dsgen.cli import FOUND, MISTAKE, OK
from dsgen.cli.lint_options import LEVELS, for_terminal, lint_all, lint_options, settings_from, spare
from dsgen.cli.mending import mend
from dsgen.cli.terminal import emit
from dsgen.documents.writing import write_atomically
from dsgen.shapes.errors import mistake

if TYPE_CHECKING:
    from dsgen.linting.files import Linted
    from dsgen.linting.fixes import Tally

__all__ = ["command"]


@click.command("lint")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@lint_options
@click.option(
    "--args",
    "arguments",
    metavar="FILE",
    help="Arguments of the Hugging Face Trainer, in YAML, JSON or its program: they settle autos.",
)
@click.option("--severity", type=click.Choice(LEVELS), help="The lowest that is shown (default: warning).")
@click.option("--fail-on", type=click.Choice(LEVELS), help="The lowest that makes the exit code 1 (default: error).")
@click.option("--fix", is_flag=True, help="Mend what can be mended safely, in the files.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix or --diff: also fixes that change what is trained.")
@click.option("--diff", is_flag=True, help="Print what --fix would change; write nothing.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "sarif", "github"]), default="text", show_default=True
)
@click.option("-o", "--output", metavar="FILE", help="Where to write the report (default: stdout).")
@click.option("--statistics", is_flag=True, help="A table of the rules instead of each finding.")
@click.option("--exit-zero", is_flag=True, help="Exit code 0 whatever there is.")
@click.option("--stdin-filename", metavar="FILE", help="What to call the standard input, given as -.")
def command(
    files: tuple[str, ...],
    severity: str | None,
    fail_on: str | None,
    fix: bool,
    unsafe_fixes: bool,
    diff: bool,
    form: str,
    output: str | None,
    statistics: bool,
    exit_zero: bool,
    stdin_filename: str | None,
    **options: Any,
) -> int:
    """Say what is wrong with DeepSpeed config files, before a GPU is booked.

    FILE is a file, a folder, a glob, or - for the standard input: JSON, HJSON, YAML of accelerate and axolotl, launch
    files. Settings are read from [tool.dsgen.lint] in the nearest pyproject.toml; the command line wins. Exit code 1
    means an error, or what --fail-on says; with --fix, one that remains.
    """
    _check(fix, unsafe_fixes, diff, form, statistics)
    if stdin_filename is not None and "-" not in files:
        raise mistake(
            "--stdin-filename names the standard input, which is not read", must="it goes with - among the files"
        )
    said = settings_from(options, severity, fail_on)
    linted, wrong = lint_all(files, said, stdin_filename)
    fails, fixed = any(file.fails for file in linted), None
    if output is not None and output != "-":
        spare(linted, output)
    if fix or diff:
        linted, fixed, stuck = mend(linted, unsafe=unsafe_fixes, write=fix)
        fails, wrong = fails if diff else any(file.fails for file in linted), wrong or stuck
    streams_text = diff or (fix and "-" in files)  # stdout holds the diff, or the mended standard input
    tried = ("all" if unsafe_fixes else "safe") if fix or diff else None
    to_file = output is not None and output != "-"
    stream = None if to_file else sys.stderr if streams_text else sys.stdout
    report = _report(linted, form, statistics, fixed, fix, tried, stream)
    if output is not None and to_file:
        write_atomically(output, report)
        click.echo(f"wrote {output}", err=True)
    elif form in ("json", "sarif"):
        emit(report, "json", err=streams_text)
    elif report:
        click.echo(report, nl=False, err=streams_text)
    if wrong:
        return MISTAKE
    return FOUND if fails and not exit_zero else OK


def _check(fix: bool, unsafe_fixes: bool, diff: bool, form: str, statistics: bool) -> None:
    if unsafe_fixes and not (fix or diff):
        raise mistake("--unsafe-fixes does nothing alone", must="it goes with --fix or --diff", code="missing")
    if fix and diff:
        raise mistake(
            "--fix and --diff exclude each other",
            must="--fix writes the files, --diff only shows what it would",
            code="contradiction",
        )
    if statistics and form != "text":
        raise mistake(
            f"--statistics and --format {form} exclude each other", must="the table is text", code="contradiction"
        )


def _report(
    linted: Sequence[Linted],
    form: str,
    statistics: bool,
    fixed: Tally | None,
    written: bool,
    tried: str | None,
    stream: TextIO | None,
) -> str:
    """The report in the format that was asked for; text in the colours that the stream takes."""
    import json

    from dsgen.report import findings

    if form == "text" and not linted:
        return ""  # why there is none stands on stderr
    if form == "json":
        return f"{json.dumps(findings.data(linted), indent=2)}\n"
    if form == "sarif":
        from dsgen.report import sarif

        return f"{json.dumps(sarif.data(linted, Path.cwd(), *_package()), indent=2)}\n"
    if form == "github":
        from dsgen.report import github

        return github.text(linted)
    width, paint = for_terminal(stream)
    body = findings.text(linted, width, paint)
    if statistics:
        from dsgen.report import survey

        body = f"{survey.rule_table(linted, width)}\n" if body else ""
    return body + findings.summary(linted, width, fixed=fixed, written=written, tried=tried)


def _package() -> tuple[str | None, str | None]:
    """dsgen's version, and where the pages of its rules stand; None where it runs without being installed."""
    from importlib import metadata

    try:
        said = metadata.metadata("dsgen")
    except metadata.PackageNotFoundError:
        return None, None
    urls = dict(url.split(", ", 1) for url in said.get_all("Project-URL") or [] if ", " in url)
    return said["Version"], f"{urls['Documentation'].rstrip('/')}/rules/" if "Documentation" in urls else None
