"""`dsgen effective`: the config through the installed DeepSpeed, and what survives of it."""

from __future__ import annotations

import click

from dsgen.cli import FOUND, OK
from dsgen.cli.lint_options import TARGETS
from dsgen.cli.terminal import emit, width

__all__ = ["command"]


@click.command("effective")
@click.argument("file")
@click.option(
    "--world-size",
    type=click.IntRange(1),
    metavar="N",
    help="GPUs in all (default: as the batch keys imply).",
)
@click.option(
    "--target",
    type=click.Choice(TARGETS),
    help="The program that hands the config over (default: as dsgen lint takes it); what it fills in is left open.",
)
@click.option(
    "--args",
    "arguments",
    metavar="FILE",
    help="Arguments of the Hugging Face Trainer, in YAML, JSON or its program: what they fill in is shown.",
)
@click.option("--python", metavar="PROGRAM", help="Interpreter that has torch and deepspeed (default: this one).")
@click.option("--timeout", type=click.FloatRange(min=1), default=120.0, show_default=True, metavar="SECONDS")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    file: str,
    world_size: int | None,
    target: str | None,
    arguments: str | None,
    python: str | None,
    timeout: float,
    form: str,
) -> int:
    """Load a config through the installed DeepSpeed and show what survives.

    FILE is a DeepSpeed config, or a file that holds or names one, as dsgen lint takes it. Every written key stands
    beside the value in force: kept, converted, dropped, moved, filled in or not read; then the defaults that nobody
    wrote. No GPU is needed, and one child process stands for any number of them.
    Needs `pip install "dsgen[proof]"`. Exit code 1 means that DeepSpeed refuses the config, or that dsgen lint has an
    error for the program that hands it over.
    """
    import json

    from dsgen.asking import handovers
    from dsgen.report import effective as report

    effect = handovers.effective(
        file, target=target, arguments=arguments, world_size=world_size, python=python, timeout_seconds=timeout
    )
    if form == "text":
        emit(report.text(effect, width()), "effective", nl=True)
    else:
        emit(json.dumps(effect.to_dict(), indent=2), "json", nl=True)
    return OK if effect.refused is None else FOUND
