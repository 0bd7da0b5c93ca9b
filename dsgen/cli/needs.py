"""`dsgen needs`: what a person's program must do for a plan, as a checklist with code."""

from __future__ import annotations

from typing import Any

import click

from dsgen.cli.options import arguments_option, job_from, scenario_options
from dsgen.cli.render import TARGETS
from dsgen.cli.terminal import emit

__all__ = ["command"]


@click.command("needs")
@click.argument("scenario", required=False)
@scenario_options
@arguments_option
@click.option(
    "--target",
    type=click.Choice(TARGETS),
    help="Whose code is shown (default: the program's whose arguments --args are, or deepspeed).",
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(scenario: str | None, target: str | None, form: str, **options: Any) -> None:
    """Show what your program must do for a scenario's plan, with the code, and what happens without it.

    No key of DeepSpeed's does these things; memory and speed are predicted for a program that does them all.
    """
    from dsgen.frameworks.needs import needs
    from dsgen.planning.planner import plan
    from dsgen.rendering import render
    from dsgen.report import needs as report

    target = target or _program(options["arguments"]) or "deepspeed"
    told = needs(render(plan(job_from(scenario, options, target))).plan, target)  # what has no config has no program
    emit(
        report.text(told, target) if form == "text" else report.as_json(told, target),
        "needs" if form == "text" else "json",
    )


def _program(arguments: str | None) -> str | None:
    """The framework of a file of arguments, as --target takes it; None where there is no file, or it is of none."""
    if arguments is None:
        return None
    from dsgen.asking.training_arguments import read_arguments

    return read_arguments(arguments).framework
