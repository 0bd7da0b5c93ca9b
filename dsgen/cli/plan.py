"""`dsgen plan`: the choice, its rivals, the rejections, and where the memory goes."""

from __future__ import annotations

from typing import Any

import click

from dsgen.cli.options import idle, job_from, scenario_options
from dsgen.cli.terminal import emit, width

__all__ = ["command"]


@click.command("plan")
@click.argument("scenario", required=False)
@scenario_options
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--all", "every", is_flag=True, help="Show every rejection, not only those that a pin did not exclude.")
def command(scenario: str | None, form: str, every: bool, **options: Any) -> None:
    """Show the chosen strategy, its rivals and what was rejected, with numbers."""
    import json

    from dsgen.planning.planner import plan
    from dsgen.report import plan as report
    from dsgen.report.summary import fit

    planned = plan(job_from(scenario, options))
    if form == "json":
        if every:
            idle("--all", "JSON holds every rejection")
        emit(json.dumps(report.data(planned), indent=2), "json", nl=True)
    else:
        emit(report.text(planned, every, width()), "plan")
        for warning in planned.warnings:
            click.echo(fit(f"warning: {warning}"), err=True)
