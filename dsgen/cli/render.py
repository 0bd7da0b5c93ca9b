"""`dsgen render`: the config on stdout or in a file, a short summary for a person on stderr."""

from __future__ import annotations

from typing import Any

import click

from dsgen.cli.options import job_from, scenario_options
from dsgen.cli.terminal import emit

__all__ = ["command"]


@click.command("render")
@click.argument("scenario", required=False)
@scenario_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "hjson"]),
    default="json",
    show_default=True,
    help="Of the config: hjson has a comment with the reason behind each key; DeepSpeed reads both.",
)
@click.option("-o", "--output", metavar="FILE", help="Write the config to a file, whole or not at all.")
@click.option("-q", "--quiet", is_flag=True, help="No summary on stderr.")
def command(scenario: str | None, form: str, output: str | None, quiet: bool, **options: Any) -> None:
    """Print the DeepSpeed config for a scenario.

    Name the hardware and the model, or give a SCENARIO file with the same fields. The config goes to stdout and
    nothing else does; a short summary goes to stderr.
    """
    from dsgen.planning.planner import plan
    from dsgen.rendering import render
    from dsgen.report import summary

    config = render(plan(job_from(scenario, options)))
    text = config.to_json() if form == "json" else config.to_hjson()
    output = None if output == "-" else output
    if output is None:
        emit(text, "json")
    else:
        from dsgen.documents.writing import write_atomically

        write_atomically(output, text)
    if not quiet:
        emit(summary.text(config, output), "summary", err=True)
