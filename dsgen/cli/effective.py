"""`dsgen effective`: the config through the installed DeepSpeed, and what survives of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dsgen.cli import FOUND, OK
from dsgen.cli.lint_options import TARGETS

__all__ = ["command"]

_ALONE = "deepspeed"


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
    help="The program that hands the config over (default: deepspeed, or the one whose file it is); what it fills in is"
    " left open.",
)
@click.option("--python", metavar="PROGRAM", help="Interpreter that has torch and deepspeed (default: this one).")
@click.option("--timeout", type=click.FloatRange(min=1), default=120.0, show_default=True, metavar="SECONDS")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    file: str, world_size: int | None, target: str | None, python: str | None, timeout: float, form: str
) -> int:
    """Load a config through the installed DeepSpeed and show what survives.

    FILE is a DeepSpeed config. Every written key stands beside the value in force: kept, converted, dropped, moved or
    not read; then the defaults that nobody wrote. No GPU and no second process is needed for any number of GPUs.
    Needs `pip install "dsgen[proof]"`. Exit code 1 means that DeepSpeed refuses the config.
    """
    import json
    import shutil

    from dsgen import effective
    from dsgen.report import effective as report

    source, program, ranks = _handed_over(file)
    found = effective.load(
        source, world_size=world_size or ranks, target=target or program, python=python, timeout_seconds=timeout
    )
    width = shutil.get_terminal_size().columns
    click.echo(report.text(found, width) if form == "text" else json.dumps(found.to_dict(), indent=2))
    return OK if found.refused is None else FOUND


def _handed_over(file: str) -> tuple[str | Mapping[str, Any], str, int | None]:
    """What DeepSpeed is given, by whom, and for how many ranks, where that is said.

    It opens a file itself; what another program's file holds or names is handed over.
    """
    from dsgen.linting import configs

    if file != "-" and not file.lower().endswith((".yaml", ".yml")):
        return file, _ALONE, None
    source = configs.read(file, bare=True)
    if file != "-" and source.document.whole is None and source.of is None:
        return file, _ALONE, None  # DeepSpeed's own words on YAML
    return source.document.config, source.target, source.world_size
